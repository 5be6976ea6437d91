// The engine with its thread: what other threads see. Also the file to run under TSan.

#include "worker/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "common/base/status.h"
#include "worker/engine/mailbox.h"
#include "worker/model/fake_runner.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr auto kPatience = 30s;  // only ever reached by a failing test

// Reads a mailbox on the test's thread.
class Client {
 public:
  explicit Client(Engine* engine) : engine_(engine) {
    box_ = std::make_shared<Mailbox>(
        64 << 20,
        [this] {
          std::lock_guard<std::mutex> lock(mutex_);
          ready_ = true;
          changed_.notify_all();
        },
        [] { ADD_FAILURE() << "overflow"; });
    session = engine_->RegisterSession(box_);
  }

  // Takes what comes until done() is true.
  template <typename Done>
  void ReadUntil(const Done& done) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!done()) {
      {
        std::unique_lock<std::mutex> lock(mutex_);
        if (!changed_.wait_until(lock, end, [this] { return ready_; })) {
          ADD_FAILURE() << "gave up waiting";
          return;
        }
        ready_ = false;
      }
      StepEvents events;
      while (box_->Take(&events)) Record(events);
    }
  }
  void ReadFinishes(size_t count) {
    ReadUntil([&] { return finishes.size() >= count; });
  }

  uint32_t session = 0;
  std::map<uint64_t, std::vector<TokenId>> tokens;
  std::map<uint64_t, FinishEvent> finishes;
  size_t accepted = 0;

 private:
  void Record(const StepEvents& events) {
    accepted += events.accepted.size();
    for (const TokenEvent& e : events.tokens) {
      EXPECT_EQ(e.index, static_cast<int>(tokens[Value(e.id)].size()));
      tokens[Value(e.id)].push_back(e.token);
    }
    for (const FinishEvent& e : events.finished) {
      EXPECT_TRUE(finishes.emplace(Value(e.id), e).second) << "finished twice";
    }
  }

  Engine* const engine_;
  std::shared_ptr<Mailbox> box_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ready_ = false;
};

FakeRunnerOptions Runner() {
  FakeRunnerOptions o;
  o.vocab_size = 500;
  o.max_model_len = 512;
  o.max_num_seqs = 16;
  o.max_num_batched_tokens = 128;
  o.num_blocks = 200;
  o.verify = true;
  return o;
}

std::unique_ptr<Engine> Start(FakeRunnerOptions runner, EngineOptions options = {}) {
  options.model_fingerprint = "fake";
  auto engine = Engine::Create(std::move(options), FakeRunner::Create(std::move(runner)).value());
  EXPECT_TRUE(engine.ok()) << engine.status();
  return *std::move(engine);
}

EngineRequest Request(const Client& client, uint64_t id, int prompt, int32_t max_tokens) {
  EngineRequest r;
  r.id = RequestId{id};
  r.session = client.session;
  for (int i = 0; i < prompt; ++i) r.prompt_ids.push_back((static_cast<int>(id) * 31 + i) % 500);
  r.max_tokens = max_tokens;
  r.sampling.seed = id;
  return r;
}

TEST(EngineTest, RunsManyRequestsFromManyThreadsAtBothDepths) {
  std::map<uint64_t, std::vector<TokenId>> of_depth_one;
  for (const int depth : {1, 2}) {
    EngineOptions options;
    options.steps_in_flight = depth;
    auto engine = Start(Runner(), options);
    Client client(engine.get());
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (uint64_t i = 0; i < 50; ++i) {
          const uint64_t id = t * 100 + i;
          ASSERT_TRUE(engine->Submit(Request(client, id, static_cast<int>(10 + i * 3), 20)).ok());
          (void)engine->Stats();
        }
      });
    }
    client.ReadFinishes(200);
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(engine->WaitIdle(kPatience));
    EXPECT_EQ(client.accepted, 200u);
    for (const auto& [id, finish] : client.finishes) {
      EXPECT_EQ(finish.reason, FinishReason::kLength);
      EXPECT_EQ(client.tokens[id].size(), 20u);
    }
    if (depth == 1) of_depth_one = client.tokens;
    EXPECT_EQ(client.tokens, of_depth_one);
  }
}

TEST(EngineTest, CancelsRaceWithEverything) {
  auto engine = Start(Runner());
  Client client(engine.get());
  std::thread submitter([&] {
    for (uint64_t id = 0; id < 500; ++id) {
      ASSERT_TRUE(engine->Submit(Request(client, id, 30, 30)).ok());
    }
  });
  std::thread canceller([&] {
    for (int round = 0; round < 20; ++round) {
      for (uint64_t id = 0; id < 500; ++id) engine->Cancel(client.session, RequestId{id});
    }
  });
  client.ReadFinishes(500);
  submitter.join();
  canceller.join();
  EXPECT_TRUE(engine->WaitIdle(kPatience));
}

TEST(EngineTest, ClosingASessionWhileItRuns) {
  auto engine = Start(Runner());
  for (int round = 0; round < 20; ++round) {
    Client client(engine.get());
    for (uint64_t id = 0; id < 20; ++id) {
      ASSERT_TRUE(engine->Submit(Request(client, id, 30, 400)).ok());
    }
    client.ReadUntil([&] { return client.tokens.size() > 3; });
    engine->CloseSession(client.session);
    EXPECT_EQ(engine->Submit(Request(client, 77, 3, 3)).code(), absl::StatusCode::kNotFound);
    EXPECT_TRUE(engine->WaitIdle(kPatience));
  }
}

TEST(EngineTest, DrainFinishesWhatRunsAndAbortEndsTheRest) {
  EngineOptions options;
  auto engine = Start(Runner(), options);
  Client client(engine.get());
  ASSERT_TRUE(engine->Submit(Request(client, 1, 30, 100)).ok());
  engine->StartDrain();
  EXPECT_EQ(engine->Submit(Request(client, 2, 30, 100)).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(engine->WaitIdle(kPatience));
  EXPECT_TRUE(engine->Stats().draining);
  client.ReadFinishes(1);
  EXPECT_EQ(client.finishes[1].reason, FinishReason::kLength);
}

TEST(EngineTest, AHungRunnerShowsAsAnOldStampAndAbortWaitsForIt) {
  FakeRunnerOptions o = Runner();
  o.hang_at_step = 3;
  auto runner = FakeRunner::Create(o).value();
  FakeRunner* const hung = runner.get();
  auto engine = Engine::Create({}, std::move(runner)).value();
  Client client(engine.get());
  ASSERT_TRUE(engine->Submit(Request(client, 1, 30, 100)).ok());
  client.ReadUntil([&] { return client.tokens[1].size() >= 1; });
  EXPECT_FALSE(engine->WaitIdle(0ms));
  engine->AbortAll(absl::UnavailableError("going down"));
  const int64_t stamp = engine->Stats().last_loop_ns;
  EXPECT_FALSE(engine->WaitIdle(250ms)) << "a healthy engine turns every 100 ms";
  EXPECT_EQ(engine->Stats().last_loop_ns, stamp);
  hung->ReleaseHang();
  client.ReadFinishes(1);
  EXPECT_EQ(client.finishes[1].status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(engine->WaitIdle(kPatience));
}

TEST(EngineTest, AFailedRunnerIsFatalAndNobodyGetsAFinish) {
  FakeRunnerOptions o = Runner();
  o.fail_at_step = 4;
  std::mutex mutex;
  std::condition_variable changed;
  absl::Status fatal;
  EngineOptions options;
  options.on_fatal = [&](const absl::Status& status) {
    std::lock_guard<std::mutex> lock(mutex);
    fatal = status;
    changed.notify_all();
  };
  auto engine = Start(o, options);
  Client client(engine.get());
  ASSERT_TRUE(engine->Submit(Request(client, 1, 30, 100)).ok());
  {
    std::unique_lock<std::mutex> lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, kPatience, [&] { return !fatal.ok(); }));
  }
  EXPECT_EQ(fatal.code(), absl::StatusCode::kInternal);
  client.ReadUntil([&] { return client.tokens[1].size() >= 3; });
  EXPECT_TRUE(client.finishes.empty());
}

TEST(EngineTest, AnIdleEngineKeepsItsStampFresh) {
  auto engine = Start(Runner());
  const int64_t before = engine->Stats().last_loop_ns;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (engine->Stats().last_loop_ns <= before && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  EXPECT_GT(engine->Stats().last_loop_ns, before);
}

TEST(EngineTest, DestructionWithWorkInFlightIsClean) {
  for (int i = 0; i < 20; ++i) {
    auto engine = Start(Runner());
    Client client(engine.get());
    for (uint64_t id = 0; id < 20; ++id) {
      ASSERT_TRUE(engine->Submit(Request(client, id, 30, 400)).ok());
    }
    engine.reset();
  }
}

TEST(EngineTest, ImpossibleOptionsAreNamed) {
  const auto message = [](FakeRunnerOptions runner, EngineOptions options) {
    auto engine = Engine::Create(std::move(options), FakeRunner::Create(runner).value());
    EXPECT_FALSE(engine.ok());
    return std::string(engine.status().message());
  };
  EngineOptions o;
  o.max_model_len = 513;
  EXPECT_THAT(message(Runner(), o), HasSubstr("max_model_len: 513"));
  o = {};
  o.max_num_seqs = 17;
  EXPECT_THAT(message(Runner(), o), HasSubstr("max_num_seqs: 17"));
  o = {};
  o.max_num_batched_tokens = 20;
  EXPECT_THAT(message(Runner(), o), HasSubstr("max_num_batched_tokens: 20"));
  o = {};
  o.steps_in_flight = 3;
  EXPECT_THAT(message(Runner(), o), HasSubstr("steps_in_flight: 3"));
  o = {};
  o.max_queued_requests = -1;
  EXPECT_THAT(message(Runner(), o), HasSubstr("max_queued_requests: -1"));
  FakeRunnerOptions small = Runner();
  small.num_blocks = 32;  // 31 usable, 512 tokens need 32
  EXPECT_THAT(message(small, {}), HasSubstr("need 32 KV blocks, but only 31"));
}

TEST(EngineTest, LimitsAreReported) {
  FakeRunnerOptions o = Runner();
  o.chunk_times = {{16, 100}, {32, 120}, {64, 140}, {112, 400}};
  auto engine = Start(o);
  EXPECT_EQ(engine->limits().prefill_chunk, 64);
  EXPECT_EQ(engine->limits().max_model_len, 512);
  EXPECT_EQ(engine->limits().block_size, 16);
  EXPECT_EQ(engine->runner_info().device, "fake");
}

}  // namespace
}  // namespace penstock
