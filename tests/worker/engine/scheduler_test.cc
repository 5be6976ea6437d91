#include "worker/engine/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/worker/engine/engine_harness.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(PrefillChunkSizeTest, TakesTheSmallestSizeThatIsNearlyAsFastPerToken) {
  struct Case {
    std::vector<RunnerInfo::ChunkTime> table;
    int32_t block;
    int32_t cap;
    int32_t expected;
  };
  const std::vector<Case> cases = {
      {{}, 16, 96, 96},                                    // no table: what fits
      {{}, 16, 100, 96},                                   // rounded down to blocks
      {{}, 16, 7, 16},                                     // never below a block
      {{{16, 1000}, {32, 1900}, {64, 3700}}, 16, 96, 16},  // linear: small is as good
      {{{16, 1000}, {32, 1010}, {64, 1020}}, 16, 96, 64},  // flat: as large as fits
      {{{16, 1000}, {32, 1010}, {64, 1020}}, 16, 40, 32},  // within the cap
      {{{16, 100}, {64, 250}, {256, 800}, {1024, 3100}}, 16, 2000, 256},
      {{{8, 10}, {20, 100}}, 16, 64, 16},  // 8 is not a block, 20 is cut
      {{{128, 500}}, 16, 64, 64},          // nothing usable
      {{{16, 0}, {32, 100}}, 16, 64, 32},  // a broken entry
  };
  for (const Case& c : cases) EXPECT_EQ(PrefillChunkSize(c.table, c.block, c.cap), c.expected);
}

// Sequences in hand-made states, planned without an engine.
class SchedulerTest : public ::testing::Test {
 protected:
  static constexpr int32_t kBlock = 4;
  static constexpr int32_t kChunk = 8;

  SchedulerTest() : kv_({{KvGroupInfo{.num_blocks = 21}}}, kBlock, 2 * kChunk) {}

  Sequence* Make(int32_t num_tokens, int64_t rank = 0) {
    auto s = std::make_unique<Sequence>();
    s->num_prompt = num_tokens;
    s->tokens.assign(static_cast<size_t>(num_tokens), 1);
    s->max_tokens = 100;
    s->rank = rank;
    s->arrival = ++arrivals_;
    all_.push_back(std::move(s));
    return all_.back().get();
  }
  // Running with `computed` of its prompt, all collected.
  Sequence* Running(int32_t num_tokens, int32_t computed, int64_t rank = 0) {
    Sequence* s = Make(num_tokens, rank);
    s->state = SequenceState::kRunning;
    s->prefill_end = num_tokens;
    s->computed = s->collected = computed;
    if (computed == num_tokens) s->tokens.push_back(1);  // has sampled
    kv_.Grow(kv_.BlocksFor(computed), &s->table);
    running_.push_back(s);
    return s;
  }
  Sequence* Waiting(int32_t num_tokens, int64_t rank = 0) {
    waiting_.push_back(Make(num_tokens, rank));
    return waiting_.back();
  }
  const SchedulePlan& Plan(int32_t free_slots = 8) {
    Scheduler scheduler({.max_num_batched_tokens = 24, .prefill_chunk = kChunk}, kv_);
    scheduler.Plan({.step = step_,
                    .running = running_,
                    .waiting = waiting_,
                    .free_slots = free_slots,
                    .draining = draining_,
                    .starts = starts_},
                   &plan_);
    return plan_;
  }
  std::map<const Sequence*, int32_t> Rows() const {
    std::map<const Sequence*, int32_t> rows;
    for (const PlannedRow& row : plan_.rows) rows[row.sequence] = row.num_tokens;
    return rows;
  }

  KvCache kv_;
  std::vector<std::unique_ptr<Sequence>> all_;
  std::vector<Sequence*> running_, waiting_, draining_;
  uint64_t arrivals_ = 0;
  uint64_t step_ = 1;
  uint64_t starts_ = 0;
  SchedulePlan plan_;
};

TEST_F(SchedulerTest, PlansNothingWithoutSequences) {
  EXPECT_THAT(Plan().rows, IsEmpty());
  EXPECT_THAT(plan_.started, IsEmpty());
}

TEST_F(SchedulerTest, AlonePromptsTakeTheWholeBudgetOneChunkEach) {
  for (int i = 0; i < 4; ++i) Waiting(12);
  Plan();
  EXPECT_THAT(plan_.started, SizeIs(4));
  // 24 tokens: three chunks of 8; the fourth starts and waits for its turn.
  EXPECT_THAT(Rows(), SizeIs(3));
  for (const auto& [s, tokens] : Rows()) EXPECT_EQ(tokens, 8);
}

TEST_F(SchedulerTest, BesideAStreamPromptsTakeOneChunkInAll) {
  const Sequence* stream = Running(6, 6);
  const Sequence* first = Waiting(5);
  const Sequence* second = Waiting(3);
  const Sequence* third = Waiting(2);
  Plan();
  EXPECT_THAT(plan_.started, SizeIs(3));
  EXPECT_THAT(Rows(), ElementsAre(std::pair(stream, 1), std::pair(first, 5), std::pair(second, 3)));
  EXPECT_EQ(Rows().count(third), 0u);
}

TEST_F(SchedulerTest, ChunksEndAtMultiplesOfTheChunkSize) {
  Sequence* s = Running(30, 12);  // as after a prefix hit
  Plan();
  EXPECT_EQ(Rows()[s], 4);
  s->computed = 16;
  kv_.Grow(4, &s->table);
  Plan();
  EXPECT_EQ(Rows()[s], 8);
  s->computed = 24;
  kv_.Grow(6, &s->table);
  Plan();
  EXPECT_EQ(Rows()[s], 6);
}

TEST_F(SchedulerTest, NoRowWhenTheTokensInFlightReachTheLength) {
  Sequence* s = Running(6, 6);
  s->max_tokens = 2;
  s->unknown = 1;
  EXPECT_THAT(Plan().rows, IsEmpty());
  s->max_tokens = 3;
  EXPECT_THAT(Plan().rows, SizeIs(1));
}

TEST_F(SchedulerTest, PromptsTakeTurns) {
  Running(4, 4);
  Sequence* longer = Running(60, 8);
  Sequence* shorter = Running(12, 0);
  longer->turn = shorter->turn = 5;  // served equally long ago: the shorter rest first
  step_ = 6;
  Plan();
  EXPECT_EQ(Rows().count(shorter), 1u);
  EXPECT_EQ(Rows().count(longer), 0u);
  shorter->turn = 6;
  step_ = 7;
  Plan();
  EXPECT_EQ(Rows().count(shorter), 0u);
  EXPECT_EQ(Rows().count(longer), 1u);
}

TEST_F(SchedulerTest, BetterRanksArePrefilledFirstExceptInEveryEighthStep) {
  Running(4, 4);
  Sequence* better = Running(30, 8, -1);
  Sequence* worse = Running(30, 8, 1);
  better->turn = 15;
  worse->turn = 3;
  step_ = 15;
  Plan();
  EXPECT_EQ(Rows().count(better), 1u);
  step_ = 16;
  Plan();
  EXPECT_EQ(Rows().count(better), 0u);
  EXPECT_EQ(Rows().count(worse), 1u);
}

TEST_F(SchedulerTest, PreemptsTheLeastImportantWhenBlocksRunOut) {
  Sequence* a = Running(32, 32);  // 8 blocks each, 20 in all, the next token needs one more
  Running(32, 32);
  Sequence* c = Running(16, 16);  // 4 blocks
  EXPECT_EQ(kv_.num_free(0), 0);
  Plan();
  EXPECT_THAT(plan_.preempted, ElementsAre(c));
  EXPECT_EQ(Rows().size(), 2u);
  EXPECT_EQ(Rows()[a], 1);
}

TEST_F(SchedulerTest, WaitsForBlocksOfAVictimThatIsInFlight) {
  Sequence* a = Running(40, 40);
  Sequence* b = Running(40, 40);
  b->rows_in_flight = 1;
  Plan();
  EXPECT_THAT(plan_.preempted, ElementsAre(b));
  EXPECT_THAT(plan_.rows, IsEmpty()) << "its blocks come with Collect";
  // And does not preempt another for what is already on its way.
  running_ = {a};
  draining_ = {b};
  Sequence* c = Make(8);
  c->state = SequenceState::kRunning;
  c->prefill_end = c->computed = 0;
  running_.push_back(c);
  Plan();
  EXPECT_THAT(plan_.preempted, IsEmpty());
}

TEST_F(SchedulerTest, TheLastOneWaitsInsteadOfPreemptingItself) {
  Running(36, 36);
  Running(44, 44);
  running_.front()->max_tokens = 1;  // done but for its Collect
  Plan();
  EXPECT_THAT(plan_.preempted, IsEmpty());
  EXPECT_THAT(plan_.rows, IsEmpty());
}

TEST_F(SchedulerTest, StartsInOrderAndNobodyOvertakes) {
  Running(40, 40);
  Sequence* large = Waiting(44);
  Waiting(2);
  Plan();  // 10 blocks are free; the large one needs 11
  EXPECT_THAT(plan_.started, IsEmpty());
  large->tokens.resize(32);
  Plan();
  EXPECT_THAT(plan_.started, SizeIs(1)) << "8 blocks and room for growth; no block for a third";
}

TEST_F(SchedulerTest, RunningPromptsKeepTheBlocksTheyStillNeed) {
  Running(60, 8);  // holds 2 of the 15 it needs
  Waiting(24);
  Plan();
  EXPECT_THAT(plan_.started, IsEmpty());
  waiting_[0]->tokens.resize(12);
  Plan();
  EXPECT_THAT(plan_.started, SizeIs(1));
}

TEST_F(SchedulerTest, EveryEighthStartIsTheOldest) {
  Sequence* oldest = Waiting(4, 5);
  Sequence* better = Waiting(4, -5);
  waiting_ = {better, oldest};
  for (starts_ = 0; starts_ < 7; ++starts_) {
    Plan(1);
    ASSERT_THAT(plan_.started, SizeIs(1));
    EXPECT_EQ(plan_.started[0].sequence, better);
  }
  Plan(1);
  EXPECT_EQ(plan_.started[0].sequence, oldest);
  EXPECT_TRUE(plan_.started[0].promoted);
}

TEST_F(SchedulerTest, FollowersWaitForTheirLeader) {
  SequenceGroup group;
  Sequence* leader = Waiting(12);
  Sequence* follower = Waiting(12);
  Sequence* other = Waiting(4);
  group.leader = leader;
  leader->group = follower->group = &group;
  Plan();
  ASSERT_THAT(plan_.started, SizeIs(2));
  EXPECT_EQ(plan_.started[0].sequence, leader);
  EXPECT_EQ(plan_.started[1].sequence, other) << "others do not wait behind a follower";
  group.published = true;
  Plan();
  EXPECT_THAT(plan_.started, SizeIs(3));
}

TEST_F(SchedulerTest, AStrictlyBetterRankPreemptsOneAtATime) {
  Running(4, 4, 0);
  Sequence* worst = Running(4, 4, 3);
  worst->rows_in_flight = 1;
  Sequence* urgent = Waiting(4, 3);
  Plan(0);
  EXPECT_THAT(plan_.preempted, IsEmpty()) << "equal rank waits";
  urgent->rank = 2;
  Plan(0);
  EXPECT_THAT(plan_.preempted, ElementsAre(worst));
  EXPECT_EQ(Rows().count(worst), 0u);
  running_.pop_back();
  draining_ = {worst};
  urgent->rank = -7;
  Plan(0);
  EXPECT_THAT(plan_.preempted, IsEmpty()) << "its slot is on the way";
}

TEST_F(SchedulerTest, ThePlanIsAFunctionOfItsInput) {
  for (int i = 0; i < 5; ++i) Running(8 + i, i % 2 == 0 ? 8 + i : 4);
  for (int i = 0; i < 3; ++i) Waiting(5 + i);
  const SchedulePlan first = Plan();
  for (int i = 0; i < 3; ++i) {
    Plan();
    ASSERT_EQ(plan_.rows.size(), first.rows.size());
    for (size_t r = 0; r < first.rows.size(); ++r) {
      EXPECT_EQ(plan_.rows[r].sequence, first.rows[r].sequence);
      EXPECT_EQ(plan_.rows[r].num_tokens, first.rows[r].num_tokens);
    }
  }
}

// Notes the prompt cuts of each slot's sequence on the way to the fake runner.
class CutRecorder : public ModelRunner {
 public:
  explicit CutRecorder(FakeRunnerOptions o) : runner_(FakeRunner::Create(std::move(o)).value()) {}
  const RunnerInfo& info() const override { return runner_->info(); }
  void InitSlot(const SlotInit& init) override {
    owner_[init.slot] = init.sampling->seed;
    runner_->InitSlot(init);
  }
  absl::Status LaunchForward(const StepInput& input) override {
    for (const StepRow& row : input.rows()) {
      if (row.token_offset < 0) continue;
      cuts[owner_[row.slot]].insert(row.start_position + row.num_tokens);
    }
    return runner_->LaunchForward(input);
  }
  absl::Status LaunchSample(std::span<const RowMask> masks) override {
    return runner_->LaunchSample(masks);
  }
  absl::StatusOr<const StepOutput*> Collect() override { return runner_->Collect(); }

  std::map<uint64_t, std::set<int32_t>> cuts;  // by the request's seed

 private:
  std::unique_ptr<FakeRunner> runner_;
  std::map<SlotId, uint64_t> owner_;
};

TEST(SchedulerCutsTest, APromptIsCutAlikeAloneAndInCompany) {
  for (const bool company : {false, true}) {
    FakeRunnerOptions o = SmallRunner();
    o.max_num_seqs = 8;
    CutRecorder runner(o);
    EngineOptions options;
    options.enable_prefix_caching = false;
    options.now_ns = [] { return int64_t{0}; };
    const EngineLimits limits{.max_model_len = 128,
                              .max_num_seqs = 8,
                              .max_num_batched_tokens = 36,
                              .prefill_chunk = 16,
                              .block_size = 4,
                              .vocab_size = 50};
    Inbox inbox(100, 100'000);
    EngineLoop loop(options, limits, runner, inbox);
    const uint32_t session = inbox.Open(std::make_shared<RecordingSink>());
    const auto submit = [&](EngineRequest r) {
      r.session = session;
      ASSERT_TRUE(inbox.Submit(MakeSequence(std::move(r), limits, nullptr).value()).ok());
    };
    if (company) {
      for (uint64_t id = 1; id <= 20; ++id) submit(Request(id, Ids(static_cast<int>(id * 3)), 15));
    }
    submit(Request(77, Ids(59), 5));
    while (loop.Turn().value()) {
    }
    EXPECT_THAT(runner.cuts[77], ElementsAre(16, 32, 48, 59));
  }
}

}  // namespace
}  // namespace penstock
