// What requests share and must not share: batches, prefixes, tenants, choices, turns.

#include <gmock/gmock.h>

#include <set>

#include "tests/worker/engine/engine_harness.h"

namespace penstock {
namespace {

using ::testing::SizeIs;

class EngineSharingTest : public ::testing::TestWithParam<int> {
 protected:
  HarnessOptions Options() {
    HarnessOptions o;
    o.runner = SmallRunner();
    o.steps_in_flight = GetParam();
    return o;
  }
};
INSTANTIATE_TEST_SUITE_P(Depth, EngineSharingTest, ::testing::Values(1, 2));

// ---- Field case 21: the same request under load ----

TEST_P(EngineSharingTest, NeighboursChangeNothing) {
  for (const float temperature : {0.0f, 0.8f}) {
    EngineRequest a = Request(1000, Ids(19, 3), 16);
    a.sampling.seed = 42;
    a.sampling.temperature = temperature;
    std::vector<TokenId> alone;
    for (const int neighbours : {0, 1, 7, 31}) {
      HarnessOptions o = Options();
      o.max_num_seqs = 32;
      o.max_num_batched_tokens = 64;
      o.runner.num_blocks = 300;
      Harness h(o);
      for (int i = 0; i < neighbours; ++i) {
        ASSERT_TRUE(h.Submit(Request(static_cast<uint64_t>(i + 1), Ids(1 + i * 2, i), 20)).ok());
        if (i == neighbours / 2) {
          ASSERT_TRUE(h.Submit(a).ok());
        }
      }
      if (neighbours == 0) {
        ASSERT_TRUE(h.Submit(a).ok());
      }
      h.RunUntilIdle();
      h.ExpectEmpty();
      if (alone.empty()) alone = h.Get(1000).tokens;
      EXPECT_THAT(alone, SizeIs(16));
      EXPECT_EQ(h.Get(1000).tokens, alone) << neighbours << " neighbours";
    }
  }
}

// ---- Field case 14: n choices ----

TEST_P(EngineSharingTest, ChoicesDifferAndShareThePrompt) {
  std::vector<std::vector<TokenId>> first_run;
  for (int run = 0; run < 2; ++run) {
    Harness h(Options());
    std::vector<std::vector<TokenId>> answers;
    for (uint32_t choice = 0; choice < 3; ++choice) {
      EngineRequest r = Request(choice + 1, Ids(30), 16);
      r.sampling.seed = 7;
      r.sampling.choice = choice;
      r.group_id = 5;
      ASSERT_TRUE(h.Submit(r).ok());
    }
    h.RunUntilIdle();
    h.ExpectEmpty();
    for (uint64_t id = 1; id <= 3; ++id) answers.push_back(h.Get(id).tokens);
    EXPECT_THAT(std::set(answers.begin(), answers.end()), SizeIs(3));
    EXPECT_EQ(h.Finish(1).cached_tokens, 0);
    EXPECT_EQ(h.Finish(2).cached_tokens, 28);
    EXPECT_EQ(h.Finish(3).cached_tokens, 28);
    EXPECT_EQ(h.loop().stats().prompt_tokens, 30u + 2 + 2);
    if (run == 0) first_run = answers;
    EXPECT_EQ(answers, first_run) << "repeatable as a set";
  }
}

TEST_P(EngineSharingTest, GreedyChoicesAreEqual) {
  Harness h(Options());
  for (uint32_t choice = 0; choice < 2; ++choice) {
    EngineRequest r = Request(choice + 1, Ids(30), 16);
    r.sampling.temperature = 0;
    r.sampling.choice = choice;
    r.group_id = 5;
    ASSERT_TRUE(h.Submit(r).ok());
  }
  h.RunUntilIdle();
  EXPECT_EQ(h.Get(1).tokens, h.Get(2).tokens);
}

TEST_P(EngineSharingTest, FollowersGoOnWhenTheLeaderLeaves) {
  Harness h(Options());
  for (uint32_t choice = 0; choice < 3; ++choice) {
    EngineRequest r = Request(choice + 1, Ids(60), 16);
    r.sampling.choice = choice;
    r.group_id = 5;
    ASSERT_TRUE(h.Submit(r).ok());
  }
  h.Turn();
  h.Turn();
  EXPECT_EQ(h.loop().stats().running, 1);
  EXPECT_EQ(h.loop().stats().waiting, 2);
  h.inbox().Cancel(h.session, RequestId{1});
  h.RunUntilIdle();
  h.ExpectEmpty();
  EXPECT_EQ(h.Finish(2).reason, FinishReason::kLength);
  EXPECT_EQ(h.Finish(3).reason, FinishReason::kLength);
}

// ---- Field case 61: nothing is shared across identities ----

TEST_P(EngineSharingTest, CacheHitsOnlyInsideOneIdentity) {
  const auto identity = [](const char* salt, int32_t adapter, const char* adapter_identity) {
    EngineRequest r = Request(0, Ids(13), 2);
    r.cache_salt = salt;
    r.adapter_id = adapter;
    r.adapter_identity = adapter_identity;
    return r;
  };
  const std::vector<EngineRequest> identities = {
      identity("", -1, ""),   identity("", 1, "X"),    identity("X", -1, ""),
      identity("ab", 1, "c"), identity("a", 1, "bc"),  identity("", 1, "X, other weights"),
      identity("M", -1, ""),  identity("abc", -1, ""), identity("", 1, "abc"),
  };
  Harness h(Options());
  uint64_t id = 1;
  for (int round = 0; round < 2; ++round) {
    for (EngineRequest r : identities) {
      r.id = RequestId{id++};
      ASSERT_TRUE(h.Submit(r).ok());
      h.RunUntilIdle();
      EXPECT_EQ(h.Finish(Value(r.id)).cached_tokens, round == 0 ? 0 : 12);
    }
  }
  // Other weights under the same name are another fingerprint.
  BlockHasher hasher;
  const CacheIdentity one{.model_fingerprint = "weights 1"};
  const CacheIdentity two{.model_fingerprint = "weights 2"};
  EXPECT_NE(hasher.Root(one), hasher.Root(two));
  EXPECT_EQ(hasher.Root(one), hasher.Root(one));
}

TEST_P(EngineSharingTest, AHitNeverCoversTheLastTokenAndAnswersAreReused) {
  Harness h(Options());
  for (uint64_t id = 1; id <= 2; ++id) {  // 16 tokens: four full blocks, of which three may be hit
    ASSERT_TRUE(h.Submit(Request(id, Ids(16), 9)).ok());
    h.RunUntilIdle();
  }
  EXPECT_EQ(h.Finish(2).cached_tokens, 12);
  // The next turn of a conversation finds prompt and answer.
  EngineRequest next = Request(3, Ids(16), 4);
  next.prompt_ids.insert(next.prompt_ids.end(), h.Get(1).tokens.begin(), h.Get(1).tokens.end());
  next.prompt_ids.push_back(1);
  ASSERT_TRUE(h.Submit(next).ok());
  h.RunUntilIdle();
  EXPECT_EQ(h.Finish(3).cached_tokens,
            24);  // 16 + 9 known, of which 8 have their KV in full blocks
}

TEST_P(EngineSharingTest, RequestsThatMustNotReadTheCacheDoNot) {
  Harness h(Options());
  ASSERT_TRUE(h.Submit(Request(1, Ids(16), 2)).ok());
  h.RunUntilIdle();
  EngineRequest r = Request(2, Ids(16), 2);
  r.read_prefix_cache = false;
  ASSERT_TRUE(h.Submit(r).ok());
  h.RunUntilIdle();
  EXPECT_EQ(h.Finish(2).cached_tokens, 0);
}

// ---- Field case 58: long prompts and running streams ----

TEST_P(EngineSharingTest, AStreamKeepsItsPaceWhileALongPromptArrives) {
  HarnessOptions o = Options();
  o.prefix_caching = false;
  Harness h(o);
  ASSERT_TRUE(h.Submit(Request(1, Ids(4), 100)).ok());  // A
  for (int i = 0; i < 8; ++i) h.Turn();
  ASSERT_TRUE(h.Submit(Request(2, Ids(115), 10)).ok());  // B: 8 chunks of 16
  h.Turn();
  ASSERT_TRUE(h.Submit(Request(3, Ids(10), 10)).ok());  // C
  int turns_to_c = 0;
  int turns_to_b = 0;
  size_t before = h.Get(1).tokens.size();
  for (int turn = 1; turn <= 40; ++turn) {
    h.Turn();
    EXPECT_EQ(h.Get(1).tokens.size(), before + 1) << "A waits in turn " << turn;
    before = h.Get(1).tokens.size();
    if (turns_to_c == 0 && !h.Get(3).tokens.empty()) turns_to_c = turn;
    if (turns_to_b == 0 && !h.Get(2).tokens.empty()) turns_to_b = turn;
  }
  EXPECT_GT(turns_to_c, 0);
  EXPECT_LE(turns_to_c, 3 + GetParam());  // not after B's whole prefill
  EXPECT_GT(turns_to_b, 0);
  EXPECT_LE(turns_to_b, 8 + 1 + GetParam());  // its own chunks, one of C's, the pipeline
}

TEST_P(EngineSharingTest, AFloodOfShortPromptsDoesNotStarveALongOne) {
  HarnessOptions o = Options();
  o.prefix_caching = false;
  Harness h(o);
  ASSERT_TRUE(h.Submit(Request(1, Ids(4), 120)).ok());
  ASSERT_TRUE(h.Submit(Request(2, Ids(115), 4)).ok());
  uint64_t id = 3;
  int turns = 0;
  while (h.Get(2).tokens.empty() && turns < 200) {
    ASSERT_TRUE(h.Submit(Request(id++, Ids(12), 1)).ok());
    ASSERT_TRUE(h.Submit(Request(id++, Ids(12), 1)).ok());
    h.Turn();
    ++turns;
  }
  // Three share the prompt tokens (two slots for the flood), each at its turn.
  EXPECT_LE(turns, 8 * 3 + 2);
  h.RunUntilIdle();
  h.ExpectEmpty();
}

// ---- Priorities ----

TEST_P(EngineSharingTest, BetterPrioritiesStartFirstAndPreempt) {
  HarnessOptions o = Options();
  o.max_num_seqs = 1;
  Harness h(o);
  EngineRequest batch = Request(1, Ids(10), 60);
  batch.priority = 10;
  ASSERT_TRUE(h.Submit(batch).ok());
  for (int i = 0; i < 10; ++i) h.Turn();
  EngineRequest worse = Request(2, Ids(10), 5);
  worse.priority = 5;
  EngineRequest better = Request(3, Ids(10), 5);
  better.priority = -5;
  ASSERT_TRUE(h.Submit(worse).ok());
  ASSERT_TRUE(h.Submit(better).ok());
  while (h.Get(1).finishes.empty()) {
    h.Turn();
    if (h.Get(3).finishes.empty()) {
      EXPECT_TRUE(h.Get(2).tokens.empty());
    }
  }
  EXPECT_FALSE(h.Get(3).finishes.empty());
  EXPECT_EQ(h.Finish(1).preemptions, 1);
  EXPECT_THAT(h.Get(1).tokens, SizeIs(60));
  h.RunUntilIdle();
  h.ExpectEmpty();
}

TEST_P(EngineSharingTest, EqualPrioritiesAreServedInOrder) {
  HarnessOptions o = Options();
  o.max_num_seqs = 1;
  Harness h(o);
  for (uint64_t id = 1; id <= 6; ++id) ASSERT_TRUE(h.Submit(Request(id, Ids(10), 3)).ok());
  for (uint64_t id = 1; id <= 6; ++id) {
    while (h.Get(id).tokens.empty()) h.Turn();
    if (id < 6) {
      EXPECT_TRUE(h.Get(id + 1).tokens.empty());
    }
  }
  h.RunUntilIdle();
}

TEST_P(EngineSharingTest, NobodyStarvesUnderAStreamOfBetterPriorities) {
  HarnessOptions o = Options();
  o.max_num_seqs = 2;
  Harness h(o);
  EngineRequest low = Request(1, Ids(40), 20);
  low.priority = 1000;
  uint64_t id = 2;
  int turns = 0;
  const auto flood = [&] {
    EngineRequest r = Request(id++, Ids(8), 4);
    r.priority = -1000;
    ASSERT_TRUE(h.Submit(r).ok());
  };
  for (int i = 0; i < 10; ++i) flood();
  ASSERT_TRUE(h.Submit(low).ok());
  while (h.Get(1).finishes.empty() && turns < 2000) {
    flood();
    h.Turn();
    ++turns;
  }
  // Ten others are older; every eighth start is the oldest's; then it keeps its place.
  EXPECT_LT(turns, 600);
  EXPECT_EQ(h.Finish(1).preemptions, 0);
}

TEST_P(EngineSharingTest, TheOldestIsNeverPreempted) {
  HarnessOptions o = Options();
  o.runner.num_blocks = 36;
  Harness h(o);
  for (uint64_t id = 1; id <= 12; ++id) {
    ASSERT_TRUE(h.Submit(Request(id, Ids(12, static_cast<int>(id)), 100)).ok());
  }
  h.RunUntilIdle();
  h.ExpectEmpty();
  EXPECT_EQ(h.Finish(1).preemptions, 0);
  EXPECT_GT(h.loop().stats().preemptions, 0u);
  for (uint64_t id = 1; id <= 12; ++id) EXPECT_THAT(h.Get(id).tokens, SizeIs(100));
}

}  // namespace
}  // namespace penstock
