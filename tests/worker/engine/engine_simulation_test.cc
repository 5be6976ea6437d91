// Thousands of random requests against tiny KV caches: whatever happens to a request (neighbours,
// chunks, prefix hits, preemption, resumption, cancels of others), its tokens are those it gets
// alone. The fake runner verifies every row's blocks, and invariants are checked after every turn.

#include <algorithm>
#include <random>

#include "gtest/gtest.h"
#include "tests/worker/engine/engine_harness.h"

namespace penstock {
namespace {

struct Expected {
  EngineRequest request;
  std::vector<TokenId> alone;  // all output tokens, replayed ones included
  FinishReason reason = FinishReason::kLength;
  bool may_be_cut = false;  // cancelled or with a deadline
};

struct Scenario {
  uint32_t seed = 0;
  int depth = 1;
  std::vector<int32_t> windows;
  int32_t num_blocks = 0;
  bool caching = true;
};

class Simulation {
 public:
  explicit Simulation(const Scenario& scenario)
      : scenario_(scenario), random_(scenario.seed), harness_(Options(true)) {
    for (int i = 0; i < 4; ++i) {
      std::vector<TokenId> ids(static_cast<size_t>(Pick(5, 40)));
      for (TokenId& id : ids) id = Pick(0, 49);
      prefixes_.push_back(std::move(ids));
    }
  }

  void Run(int num_requests) {
    int submitted = 0;
    while (submitted < num_requests) {
      for (int n = Pick(0, 3); n > 0; --n) submitted += SubmitOne();
      for (int n = Pick(1, 12); n > 0; --n) harness_.Turn();
      harness_.now_ns += Pick(0, 10);
      if (Pick(0, 9) == 0) CancelOne();
      if (::testing::Test::HasFailure()) return;
    }
    harness_.RunUntilIdle(200'000);
    harness_.ExpectEmpty();
    for (const auto& [id, expected] : expected_) Check(id, expected);
  }

  const EngineStats& stats() { return harness_.loop().stats(); }

 private:
  HarnessOptions Options(bool shared) const {
    HarnessOptions o;
    o.runner = SmallRunner();
    o.runner.windows = scenario_.windows;
    o.runner.num_blocks = shared ? scenario_.num_blocks : 200;
    o.steps_in_flight = shared ? scenario_.depth : 1;
    o.prefix_caching = shared && scenario_.caching;
    o.max_num_seqs = shared ? 5 : 1;
    o.prefill_chunk = shared ? 12 : 32;
    return o;
  }

  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  EngineRequest RandomRequest() {
    EngineRequest r;
    r.id = RequestId{next_id_++};
    r.prompt_ids = prefixes_[static_cast<size_t>(Pick(0, 3))];
    for (int n = Pick(0, 20); n > 0; --n) r.prompt_ids.push_back(Pick(0, 49));
    r.max_tokens = Pick(1, 40);
    r.sampling.seed = static_cast<uint64_t>(Pick(0, 3));
    r.sampling.temperature = Pick(0, 1) == 0 ? 0.0f : 1.0f;
    r.sampling.top_logprobs = Pick(0, 3) - 1;
    if (Pick(0, 1) == 0) r.eos_ids = {Pick(0, 49), Pick(0, 49)};
    if (Pick(0, 3) == 0) r.stop_token_ids = {Pick(0, 49)};
    if (Pick(0, 3) == 0) r.sampling.min_tokens = Pick(0, r.max_tokens);
    r.priority = Pick(0, 5) == 0 ? Pick(-2, 2) : 0;
    if (Pick(0, 4) == 0) r.cache_salt = "tenant";
    if (Pick(0, 9) == 0) r.read_prefix_cache = false;
    return r;
  }

  Expected RunAlone(const EngineRequest& request) const {
    Expected e;
    e.request = request;
    Harness alone(Options(false));
    EngineRequest copy = request;
    copy.group_id = 0;
    EXPECT_TRUE(alone.Submit(copy).ok());
    alone.RunUntilIdle();
    alone.ExpectEmpty();
    e.alone = alone.Get(Value(request.id)).tokens;
    e.reason = alone.Finish(Value(request.id)).reason;
    return e;
  }

  void SubmitExpected(Expected e) {
    if (Pick(0, 4) == 0) {  // resumed from another worker, perhaps with nothing left to do
      const int known = Pick(0, static_cast<int>(e.alone.size()));
      e.request.output_ids.assign(e.alone.begin(), e.alone.begin() + known);
    }
    if (Pick(0, 9) == 0) {
      e.request.deadline_ns = harness_.now_ns + Pick(0, 60);
      e.may_be_cut = true;
    }
    ASSERT_TRUE(harness_.Submit(e.request).ok());
    expected_.emplace(Value(e.request.id), std::move(e));
  }

  int SubmitOne() {
    EngineRequest request = RandomRequest();
    const int choices = Pick(0, 5) == 0 ? Pick(2, 4) : 1;
    if (choices > 1) request.group_id = Value(request.id);
    for (int i = 0; i < choices; ++i) {
      if (i > 0) request.id = RequestId{next_id_++};
      request.sampling.choice = static_cast<uint32_t>(i);
      SubmitExpected(RunAlone(request));
    }
    return choices;
  }

  void CancelOne() {
    const uint64_t id = static_cast<uint64_t>(Pick(1, static_cast<int>(next_id_)));
    harness_.inbox().Cancel(harness_.session, RequestId{id});
    const auto it = expected_.find(id);
    if (it != expected_.end()) it->second.may_be_cut = true;
  }

  void Check(uint64_t id, const Expected& e) {
    const Received& got = harness_.Get(id);
    ASSERT_EQ(got.finishes.size(), 1u) << "request " << id;
    ASSERT_EQ(got.accepted, 1) << "request " << id;
    const FinishEvent& finish = got.finishes[0];
    const int replayed = static_cast<int>(e.request.output_ids.size());
    for (size_t i = 0; i < got.tokens.size(); ++i) {
      ASSERT_EQ(got.indices[i], replayed + static_cast<int>(i)) << "request " << id;
    }
    std::vector<TokenId> all = e.request.output_ids;
    all.insert(all.end(), got.tokens.begin(), got.tokens.end());
    ASSERT_EQ(finish.completion_tokens, static_cast<int>(all.size()));
    ASSERT_EQ(finish.prompt_tokens, static_cast<int>(e.request.prompt_ids.size()));
    ASSERT_LT(finish.cached_tokens, finish.prompt_tokens + std::max(replayed, 1));
    ASSERT_EQ(got.logprobs.size(), e.request.sampling.top_logprobs >= 0 ? got.tokens.size() : 0u);
    const bool cut =
        finish.reason == FinishReason::kCancelled || finish.reason == FinishReason::kDeadline;
    if (cut) {
      ASSERT_TRUE(e.may_be_cut);
      ASSERT_LE(all.size(), e.alone.size());
      ASSERT_TRUE(std::equal(all.begin(), all.end(), e.alone.begin())) << "request " << id;
    } else {
      ASSERT_EQ(finish.reason, e.reason) << "request " << id;
      ASSERT_EQ(all, e.alone) << "request " << id << " preempted " << finish.preemptions;
    }
  }

  const Scenario scenario_;
  std::mt19937 random_;
  Harness harness_;
  std::vector<std::vector<TokenId>> prefixes_;
  std::map<uint64_t, Expected> expected_;
  uint64_t next_id_ = 1;
};

// 128 positions in blocks of 4 need 32 blocks: 33 with the padding block is the least that works.
TEST(EngineSimulationTest, TokensAreThoseOfTheRequestAlone) {
  uint64_t preemptions = 0;
  uint64_t hits = 0;
  uint32_t seed = 1;
  for (const int depth : {1, 2}) {
    for (const auto& windows : {std::vector<int32_t>{}, std::vector<int32_t>{0, 9},
                                std::vector<int32_t>{6, 0, 17}, std::vector<int32_t>{10}}) {
      for (const int32_t num_blocks : {33, 40, 90}) {
        for (const bool caching : {true, false}) {
          SCOPED_TRACE(::testing::Message()
                       << "seed " << seed << " depth " << depth << " groups " << windows.size()
                       << " blocks " << num_blocks << " caching " << caching);
          Simulation simulation({seed++, depth, windows, num_blocks, caching});
          simulation.Run(60);
          if (HasFailure()) return;
          preemptions += simulation.stats().preemptions;
          if (caching) hits += simulation.stats().prefix_hits;
        }
      }
    }
  }
  // The scenarios must reach what they are for.
  EXPECT_GT(preemptions, 300u);
  EXPECT_GT(hits, 10'000u);
}

}  // namespace
}  // namespace penstock
