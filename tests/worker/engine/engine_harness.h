#pragma once

// Drives an EngineLoop over a verifying FakeRunner without threads or clocks, and keeps what each
// request got.

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "worker/engine/engine_loop.h"
#include "worker/engine/request_check.h"
#include "worker/model/fake_runner.h"

namespace penstock {

struct Received {
  int accepted = 0;
  std::vector<TokenId> tokens;  // in order of arrival
  std::vector<int32_t> indices;
  std::vector<LogprobEvent> logprobs;
  std::vector<FinishEvent> finishes;
};

class RecordingSink : public EventSink {
 public:
  void OnEvents(StepEvents* events) override {
    ++calls;
    for (const RequestId id : events->accepted) ++of[Value(id)].accepted;
    for (const TokenEvent& e : events->tokens) {
      Received& r = of[Value(e.id)];
      EXPECT_EQ(r.accepted, 1);
      EXPECT_TRUE(r.finishes.empty()) << "a token after the end";
      r.tokens.push_back(e.token);
      r.indices.push_back(e.index);
    }
    for (const LogprobEvent& e : events->logprobs) of[Value(e.id)].logprobs.push_back(e);
    for (const FinishEvent& e : events->finished) {
      EXPECT_TRUE(of[Value(e.id)].finishes.empty()) << "finished twice";
      of[Value(e.id)].finishes.push_back(e);
    }
  }
  std::map<uint64_t, Received> of;
  int calls = 0;
};

struct HarnessOptions {
  FakeRunnerOptions runner;
  int32_t steps_in_flight = 2;
  int32_t max_num_seqs = 4;
  int32_t max_num_batched_tokens = 36;
  int32_t prefill_chunk = 16;
  bool prefix_caching = true;
  std::string fingerprint = "model";
  size_t max_live = 100000;
  int64_t max_queued_tokens = 1'000'000'000;
};

// Small sizes that make blocks, chunks and preemption happen quickly.
inline FakeRunnerOptions SmallRunner() {
  FakeRunnerOptions o;
  o.vocab_size = 50;
  o.max_model_len = 128;
  o.block_size = 4;
  o.max_num_seqs = 4;
  o.max_num_batched_tokens = 36;
  o.num_blocks = 200;
  o.verify = true;
  o.now_ns = [] { return int64_t{0}; };
  o.sleep_ns = [](int64_t) { ADD_FAILURE() << "a unit test slept"; };
  return o;
}

class Harness {
 public:
  explicit Harness(HarnessOptions o) : options_(std::move(o)) {
    options_.runner.max_num_seqs = options_.max_num_seqs;
    options_.runner.max_num_batched_tokens = options_.max_num_batched_tokens;
    runner_ = FakeRunner::Create(options_.runner).value();
    EngineOptions engine;
    engine.model_fingerprint = options_.fingerprint;
    engine.max_model_len = options_.runner.max_model_len;
    engine.max_num_seqs = options_.max_num_seqs;
    engine.max_num_batched_tokens = options_.max_num_batched_tokens;
    engine.enable_prefix_caching = options_.prefix_caching;
    engine.steps_in_flight = options_.steps_in_flight;
    engine.now_ns = [this] { return now_ns; };
    limits_ = {.max_model_len = options_.runner.max_model_len,
               .max_num_seqs = options_.max_num_seqs,
               .max_num_batched_tokens = options_.max_num_batched_tokens,
               .prefill_chunk = options_.prefill_chunk,
               .block_size = options_.runner.block_size,
               .vocab_size = options_.runner.vocab_size};
    inbox_ = std::make_unique<Inbox>(options_.max_live, options_.max_queued_tokens);
    loop_ = std::make_unique<EngineLoop>(engine, limits_, *runner_, *inbox_);
    sink = std::make_shared<RecordingSink>();
    session = inbox_->Open(sink);
  }

  absl::Status Submit(EngineRequest request) {
    if (request.session == 0) request.session = session;
    auto made = MakeSequence(std::move(request), limits_,
                             options_.prefix_caching ? &options_.fingerprint : nullptr);
    if (!made.ok()) return made.status();
    (*made)->arrival_ns = now_ns;
    return inbox_->Submit(*std::move(made));
  }

  // False when there was nothing to do.
  bool Turn() {
    const absl::StatusOr<bool> worked = loop_->Turn();
    if (!worked.ok()) {
      ADD_FAILURE() << worked.status();
      return false;
    }
    loop_->CheckInvariants();
    return *worked;
  }

  // Turns until nothing is left to do; fails after max_turns.
  int RunUntilIdle(int max_turns = 1'000'000) {
    int turns = 0;
    while (Turn()) {
      if (++turns > max_turns) {
        ADD_FAILURE() << "not idle after " << turns << " turns";
        break;
      }
    }
    return turns;
  }

  const Received& Get(uint64_t id) { return sink->of[id]; }
  const FinishEvent& Finish(uint64_t id) {
    static const FinishEvent kNone;
    const Received& r = sink->of[id];
    EXPECT_EQ(r.finishes.size(), 1u) << "request " << id;
    return r.finishes.empty() ? kNone : r.finishes[0];
  }
  // Nothing runs, nothing waits, no block is in use.
  void ExpectEmpty() {
    const EngineStats stats = inbox_->Stats();
    EXPECT_EQ(stats.running, 0);
    EXPECT_EQ(stats.waiting, 0);
    EXPECT_EQ(stats.waiting_tokens, 0u);
    for (int g = 0; g < loop_->kv().num_groups(); ++g) {
      EXPECT_EQ(loop_->kv().num_free(g), loop_->kv().pool(g).num_blocks());
    }
    EXPECT_TRUE(inbox_->WaitIdle(std::chrono::nanoseconds(0)));
  }

  Inbox& inbox() { return *inbox_; }
  EngineLoop& loop() { return *loop_; }
  const EngineLimits& limits() const { return limits_; }

  int64_t now_ns = 1000;
  std::shared_ptr<RecordingSink> sink;
  uint32_t session = 0;

 private:
  HarnessOptions options_;
  EngineLimits limits_;
  std::unique_ptr<FakeRunner> runner_;
  std::unique_ptr<Inbox> inbox_;
  std::unique_ptr<EngineLoop> loop_;
};

inline std::vector<TokenId> Ids(int count, int first = 1, int vocab = 49) {
  std::vector<TokenId> ids;
  for (int i = 0; i < count; ++i) ids.push_back(1 + (first + i * 7) % vocab);
  return ids;
}

inline EngineRequest Request(uint64_t id, std::vector<TokenId> prompt, int32_t max_tokens) {
  EngineRequest r;
  r.id = RequestId{id};
  r.prompt_ids = std::move(prompt);
  r.max_tokens = max_tokens;
  r.sampling.seed = id;
  return r;
}

}  // namespace penstock
