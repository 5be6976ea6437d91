#include "worker/engine/engine_loop.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "tests/worker/engine/engine_harness.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Every test of the loop runs one and two steps deep.
class EngineLoopTest : public ::testing::TestWithParam<int> {
 protected:
  HarnessOptions Options() {
    HarnessOptions o;
    o.runner = SmallRunner();
    o.steps_in_flight = GetParam();
    return o;
  }
  std::vector<TokenId> Alone(const EngineRequest& request) {
    Harness h(Options());
    EXPECT_TRUE(h.Submit(request).ok());
    h.RunUntilIdle();
    h.ExpectEmpty();
    return h.Get(Value(request.id)).tokens;
  }
};
INSTANTIATE_TEST_SUITE_P(Depth, EngineLoopTest, ::testing::Values(1, 2));

TEST_P(EngineLoopTest, OneRequestRunsToItsLength) {
  Harness h(Options());
  ASSERT_TRUE(h.Submit(Request(7, Ids(37), 9)).ok());
  h.RunUntilIdle();
  h.ExpectEmpty();
  EXPECT_THAT(h.Get(7).indices, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
  const FinishEvent& finish = h.Finish(7);
  EXPECT_EQ(finish.reason, FinishReason::kLength);
  EXPECT_EQ(finish.prompt_tokens, 37);
  EXPECT_EQ(finish.completion_tokens, 9);
  EXPECT_EQ(finish.cached_tokens, 0);
  EXPECT_EQ(h.loop().stats().prompt_tokens, 37u);
  EXPECT_EQ(h.loop().stats().generation_tokens, 9u);
  // Three chunks of at most 16 tokens, the last of which samples, and no row past the length.
  EXPECT_EQ(h.loop().stats().steps, 3u + 8u);
}

TEST_P(EngineLoopTest, OneCallPerStepAndSession) {
  Harness h(Options());
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_TRUE(h.Submit(Request(id, Ids(4), 10)).ok());
  auto other = std::make_shared<RecordingSink>();
  EngineRequest foreign =
      Request(1, Ids(4), 3);  // the same id in another session is another request
  foreign.session = h.inbox().Open(other);
  ASSERT_TRUE(h.Submit(foreign).ok());
  h.RunUntilIdle();
  // The four run side by side (the fifth after them): one call to accept, one per step.
  EXPECT_EQ(h.sink->calls, 1 + 10);
  EXPECT_THAT(h.Get(1).tokens, SizeIs(10));
  EXPECT_THAT(other->of[1].tokens, SizeIs(3));
}

TEST_P(EngineLoopTest, LateTokenIsDroppedAndNothingFollowsTheEnd) {
  const std::vector<TokenId> all = Alone(Request(1, Ids(10), 20));
  Harness h(Options());
  EngineRequest r = Request(1, Ids(10), 20);
  // The first id that has not come up before index 3 ends it there.
  size_t at = 3;
  while (std::find(all.begin(), all.begin() + at, all[at]) != all.begin() + at) ++at;
  r.eos_ids = {all[at]};
  ASSERT_TRUE(h.Submit(r).ok());
  h.RunUntilIdle();
  h.ExpectEmpty();
  EXPECT_EQ(h.Finish(1).reason, FinishReason::kEos);
  EXPECT_EQ(h.Finish(1).stop_id, all[at]);
  EXPECT_EQ(h.Get(1).tokens, std::vector<TokenId>(all.begin(), all.begin() + at + 1));
  EXPECT_EQ(h.loop().stats().generation_tokens, at + 1);
}

// ---- Field case 64: several end tokens ----

class StopTest : public EngineLoopTest {
 protected:
  // A script of ids 10, 11, 12, ... whatever is asked.
  HarnessOptions Scripted() {
    HarnessOptions o = Options();
    o.runner.mode = FakeRunnerOptions::Mode::kScript;
    o.runner.scripts = {{10, 11, 12, 13, 14, 15, 16, 17, 18, 19}};
    return o;
  }
  FinishEvent Run(EngineRequest r, size_t tokens) {
    Harness h(Scripted());
    EXPECT_TRUE(h.Submit(r).ok());
    h.RunUntilIdle();
    h.ExpectEmpty();
    EXPECT_THAT(h.Get(Value(r.id)).tokens, SizeIs(tokens));
    return h.Finish(Value(r.id));
  }
};
INSTANTIATE_TEST_SUITE_P(Depth, StopTest, ::testing::Values(1, 2));

TEST_P(StopTest, EveryEndTokenOfTheUnionStops) {
  for (const TokenId eos : {10, 12, 17}) {
    EngineRequest r = Request(1, Ids(5), 10);
    r.eos_ids = {49, eos, 48};
    const FinishEvent finish = Run(r, static_cast<size_t>(eos - 9));
    EXPECT_EQ(finish.reason, FinishReason::kEos);
    EXPECT_EQ(finish.stop_id, eos);
  }
}

TEST_P(StopTest, IgnoringEosStillHonoursStopIds) {
  EngineRequest r = Request(1, Ids(5), 10);
  r.stop_token_ids = {14, 16};
  FinishEvent finish = Run(r, 5);
  EXPECT_EQ(finish.reason, FinishReason::kStopId);
  EXPECT_EQ(finish.stop_id, 14);
  r.stop_token_ids = {};
  EXPECT_EQ(Run(r, 10).reason, FinishReason::kLength);
}

TEST_P(StopTest, AnIdThatIsBothIsEos) {
  EngineRequest r = Request(1, Ids(5), 10);
  r.eos_ids = {13};
  r.stop_token_ids = {13};
  EXPECT_EQ(Run(r, 4).reason, FinishReason::kEos);
}

TEST_P(StopTest, MinTokensMasksStops) {
  EngineRequest r = Request(1, Ids(5), 10);
  r.eos_ids = {11};
  r.stop_token_ids = {12};
  r.sampling.min_tokens = 4;
  // 11 and 12 are masked before index 4; nothing later stops.
  EXPECT_EQ(Run(r, 10).reason, FinishReason::kLength);
  r.eos_ids = {14};
  EXPECT_EQ(Run(r, 5).reason, FinishReason::kEos);
  r.sampling.min_tokens = 5;
  EXPECT_EQ(Run(r, 10).reason, FinishReason::kLength);
}

TEST_P(StopTest, TheEndAtTheLastTokenIsAStop) {
  EngineRequest r = Request(1, Ids(5), 3);
  r.eos_ids = {12};
  EXPECT_EQ(Run(r, 3).reason, FinishReason::kEos);
}

// ---- Resumption ----

TEST_P(EngineLoopTest, ResumesWithoutRepeatingOrSkipping) {
  const EngineRequest whole = Request(3, Ids(21), 17);
  const std::vector<TokenId> all = Alone(whole);
  for (size_t known = 0; known <= all.size(); ++known) {
    Harness h(Options());
    EngineRequest r = whole;
    r.output_ids.assign(all.begin(), all.begin() + static_cast<ptrdiff_t>(known));
    ASSERT_TRUE(h.Submit(r).ok());
    h.RunUntilIdle();
    h.ExpectEmpty();
    std::vector<TokenId> got = r.output_ids;
    got.insert(got.end(), h.Get(3).tokens.begin(), h.Get(3).tokens.end());
    EXPECT_EQ(got, all);
    if (known < all.size()) {
      EXPECT_EQ(h.Get(3).indices[0], static_cast<int>(known));
    }
    EXPECT_EQ(h.Finish(3).completion_tokens, 17);
    EXPECT_EQ(h.Finish(3).reason, FinishReason::kLength);
  }
}

TEST_P(EngineLoopTest, AReplayedStopBeforeMinTokensDoesNotCount) {
  Harness h(Options());
  EngineRequest r = Request(1, Ids(5), 10);
  r.output_ids = {4, 5, 6};
  r.stop_token_ids = {6};
  r.sampling.min_tokens = 10;
  ASSERT_TRUE(h.Submit(r).ok());
  h.RunUntilIdle();
  EXPECT_EQ(h.Finish(1).reason, FinishReason::kLength);
  EXPECT_THAT(h.Get(1).tokens, SizeIs(7));
}

TEST_P(EngineLoopTest, AReplayThatHadEndedFinishesAtOnce) {
  Harness h(Options());
  EngineRequest r = Request(1, Ids(5), 10);
  r.output_ids = {4, 5, 6};
  r.eos_ids = {6};
  ASSERT_TRUE(h.Submit(r).ok());
  h.RunUntilIdle();
  h.ExpectEmpty();
  EXPECT_EQ(h.Finish(1).reason, FinishReason::kEos);
  EXPECT_THAT(h.Get(1).tokens, IsEmpty());
  EXPECT_EQ(h.loop().stats().steps, 0u);
}

// ---- Field cases 3 and 60: cancellation ----

TEST_P(EngineLoopTest, CancelFreesEverythingWithinTwoSteps) {
  // Turn at which to cancel: 0 while queued, 2 while prefilling, 10 while decoding.
  for (const int turns : {0, 2, 10}) {
    for (const int choices : {1, 2}) {
      Harness h(Options());
      for (int i = 0; i < choices; ++i) {
        EngineRequest r = Request(static_cast<uint64_t>(i + 1), Ids(64), 60);
        r.group_id = 9;
        r.sampling.choice = static_cast<uint32_t>(i);
        ASSERT_TRUE(h.Submit(r).ok());
      }
      for (int i = 0; i < turns; ++i) h.Turn();
      for (int i = 0; i < choices; ++i) {
        h.inbox().Cancel(h.session, RequestId{static_cast<uint64_t>(i + 1)});
        h.inbox().Cancel(h.session, RequestId{static_cast<uint64_t>(i + 1)});
      }
      for (int i = 0; i < 3; ++i) h.Turn();
      h.ExpectEmpty();
      for (int i = 0; i < choices; ++i) {
        EXPECT_EQ(h.Finish(static_cast<uint64_t>(i + 1)).reason, FinishReason::kCancelled);
      }
    }
  }
}

TEST_P(EngineLoopTest, WaitingRequestsThatLeaveNeverRun) {
  HarnessOptions o = Options();
  o.max_num_seqs = 1;
  Harness h(o);
  ASSERT_TRUE(h.Submit(Request(1, Ids(8), 50)).ok());
  for (uint64_t id = 2; id <= 20; ++id) ASSERT_TRUE(h.Submit(Request(id, Ids(40), 50)).ok());
  for (int i = 0; i < 5; ++i) h.Turn();
  EngineRequest late = Request(99, Ids(40), 50);
  late.deadline_ns = h.now_ns + 5;
  ASSERT_TRUE(h.Submit(late).ok());
  for (uint64_t id = 2; id <= 20; ++id) h.inbox().Cancel(h.session, RequestId{id});
  h.Turn();
  h.now_ns += 5;
  h.RunUntilIdle();
  h.ExpectEmpty();
  EXPECT_EQ(h.Finish(99).reason, FinishReason::kDeadline);
  EXPECT_EQ(h.loop().stats().prompt_tokens, 8u);
}

TEST_P(EngineLoopTest, TwentyThousandAbandonedRequestsLeaveNothing) {
  HarnessOptions o = Options();
  o.prefix_caching = GetParam() == 2;
  o.runner.num_blocks = 60;
  o.runner.verify = false;
  Harness h(o);
  for (uint64_t id = 1; id <= 20'000; ++id) {
    ASSERT_TRUE(h.Submit(Request(id, Ids(60, static_cast<int>(id % 97)), 60)).ok());
    if (id % 3 == 0) {
      ASSERT_TRUE(h.loop().Turn().ok());
    }
    h.inbox().Cancel(h.session, RequestId{id - id % 7});
    h.inbox().Cancel(h.session, RequestId{id});
  }
  h.RunUntilIdle();
  h.ExpectEmpty();
  EXPECT_EQ(h.sink->of.size(), 20'000u);
  for (const auto& [id, received] : h.sink->of) ASSERT_EQ(received.finishes.size(), 1u) << id;
}

TEST_P(EngineLoopTest, ClosingASessionCancelsItsRequestsAndReleasesItsSink) {
  Harness h(Options());
  std::weak_ptr<EventSink> watch;
  uint32_t session = 0;
  {
    auto sink = std::make_shared<RecordingSink>();
    watch = sink;
    session = h.inbox().Open(std::move(sink));
  }
  for (uint64_t id = 1; id <= 8; ++id) {
    EngineRequest r = Request(id, Ids(30), 50);
    r.session = session;
    ASSERT_TRUE(h.Submit(r).ok());
  }
  ASSERT_TRUE(h.Submit(Request(1, Ids(30), 50)).ok());
  for (int i = 0; i < 5; ++i) h.Turn();
  h.inbox().Close(session);
  h.Turn();
  EXPECT_TRUE(watch.expired());
  EngineRequest dead = Request(9, Ids(3), 1);
  dead.session = session;
  EXPECT_EQ(h.Submit(dead).code(), absl::StatusCode::kNotFound);
  h.RunUntilIdle();
  h.ExpectEmpty();
  EXPECT_EQ(h.Finish(1).reason, FinishReason::kLength);
}

TEST_P(EngineLoopTest, DeadlineEndsARunningRequest) {
  Harness h(Options());
  EngineRequest r = Request(1, Ids(5), 100);
  r.deadline_ns = h.now_ns + 50;
  ASSERT_TRUE(h.Submit(r).ok());
  for (int i = 0; i < 10; ++i) h.Turn();
  EXPECT_THAT(h.Get(1).finishes, IsEmpty());
  h.now_ns += 50;
  h.Turn();
  EXPECT_EQ(h.Finish(1).reason, FinishReason::kDeadline);
  h.RunUntilIdle();
  h.ExpectEmpty();
}

TEST_P(EngineLoopTest, AbortEndsAllWithTheStatus) {
  Harness h(Options());
  for (uint64_t id = 1; id <= 9; ++id) ASSERT_TRUE(h.Submit(Request(id, Ids(30), 50)).ok());
  for (int i = 0; i < 6; ++i) h.Turn();
  h.inbox().Abort(absl::UnavailableError("the worker is shutting down"));
  h.RunUntilIdle(4);
  h.ExpectEmpty();
  for (uint64_t id = 1; id <= 9; ++id) {
    EXPECT_EQ(h.Finish(id).reason, FinishReason::kError);
    EXPECT_EQ(h.Finish(id).status.code(), absl::StatusCode::kUnavailable);
  }
}

TEST_P(EngineLoopTest, TimesAreReported) {
  HarnessOptions o = Options();
  o.max_num_seqs = 1;
  Harness h(o);
  ASSERT_TRUE(h.Submit(Request(1, Ids(20), 4)).ok());
  ASSERT_TRUE(h.Submit(Request(2, Ids(20), 4)).ok());
  while (h.Turn()) h.now_ns += 1000;
  const FinishEvent& first = h.Finish(1);
  const FinishEvent& second = h.Finish(2);
  EXPECT_EQ(first.queue_ns, 0);
  EXPECT_GT(first.prefill_ns, 0);
  EXPECT_GT(first.decode_ns, 0);
  EXPECT_GE(second.queue_ns, first.prefill_ns + first.decode_ns);
}

// ---- Errors ----

TEST_P(EngineLoopTest, NonfiniteLogitsEndTheRequestAndItsBlocksLeaveTheCache) {
  HarnessOptions o = Options();
  o.runner.nonfinite_seed = 13;
  o.runner.nonfinite_index = 4;
  Harness h(o);
  EngineRequest bad = Request(13, Ids(20), 10);
  ASSERT_TRUE(h.Submit(bad).ok());
  ASSERT_TRUE(h.Submit(Request(2, Ids(20, 5), 10)).ok());
  h.RunUntilIdle();
  EXPECT_EQ(h.Finish(13).reason, FinishReason::kError);
  EXPECT_THAT(std::string(h.Finish(13).status.message()), HasSubstr("not finite"));
  EXPECT_THAT(h.Get(13).tokens, SizeIs(4));
  EXPECT_EQ(h.Finish(2).reason, FinishReason::kLength);
  EXPECT_EQ(h.loop().stats().nonfinite_requests, 1u);
  // The same prompt finds nothing, its healthy neighbour's still does.
  ASSERT_TRUE(h.Submit(Request(3, Ids(20), 2)).ok());
  ASSERT_TRUE(h.Submit(Request(4, Ids(20, 5), 2)).ok());
  h.RunUntilIdle();
  EXPECT_EQ(h.Finish(3).cached_tokens, 0);
  EXPECT_EQ(h.Finish(4).cached_tokens, 16);
}

TEST_P(EngineLoopTest, ARunnerErrorReachesTheCallerAndNobodyGetsAFinish) {
  HarnessOptions o = Options();
  o.runner.fail_at_step = 5;
  Harness h(o);
  ASSERT_TRUE(h.Submit(Request(1, Ids(5), 50)).ok());
  absl::StatusOr<bool> worked = true;
  for (int i = 0; i < 20 && worked.ok(); ++i) worked = h.loop().Turn();
  EXPECT_EQ(worked.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(h.Get(1).tokens, SizeIs(4));
  EXPECT_THAT(h.Get(1).finishes, IsEmpty());
}

// ---- Field case 56: bounds ----

TEST_P(EngineLoopTest, AFullQueueRefusesAtOnce) {
  HarnessOptions o = Options();
  o.max_live = 10;
  Harness h(o);
  int refused = 0;
  for (uint64_t id = 1; id <= 1000; ++id) {
    const absl::Status status = h.Submit(Request(id, Ids(8), 4));
    if (!status.ok()) {
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
      ++refused;
    }
  }
  EXPECT_EQ(refused, 990);
  h.RunUntilIdle();
  h.ExpectEmpty();
  EXPECT_TRUE(h.Submit(Request(5000, Ids(8), 4)).ok());
}

TEST_P(EngineLoopTest, QueuedTokensAreBounded) {
  HarnessOptions o = Options();
  o.max_queued_tokens = 100;
  o.max_num_seqs = 1;
  Harness h(o);
  ASSERT_TRUE(h.Submit(Request(1, Ids(110), 4)).ok());  // alone, it is never too much
  EXPECT_EQ(h.Submit(Request(2, Ids(1), 4)).code(), absl::StatusCode::kResourceExhausted);
  h.Turn();
  h.Turn();  // it has started: its tokens no longer wait
  ASSERT_TRUE(h.Submit(Request(3, Ids(60), 4)).ok());
  ASSERT_TRUE(h.Submit(Request(4, Ids(40), 4)).ok());
  EXPECT_EQ(h.inbox().Stats().waiting_tokens, 100u);
  EXPECT_EQ(h.Submit(Request(5, Ids(1), 4)).code(), absl::StatusCode::kResourceExhausted);
  h.inbox().Cancel(h.session, RequestId{3});
  h.Turn();
  h.Turn();
  EXPECT_TRUE(h.Submit(Request(6, Ids(60), 4)).ok());
  h.RunUntilIdle();
  h.ExpectEmpty();
}

TEST_P(EngineLoopTest, ALiveIdIsRefusedAndADrainingWorkerRefusesAll) {
  Harness h(Options());
  ASSERT_TRUE(h.Submit(Request(1, Ids(8), 4)).ok());
  EXPECT_EQ(h.Submit(Request(1, Ids(8), 4)).code(), absl::StatusCode::kAlreadyExists);
  h.inbox().StartDrain();
  EXPECT_EQ(h.Submit(Request(2, Ids(8), 4)).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(h.inbox().Stats().draining);
  h.RunUntilIdle();
  EXPECT_EQ(h.Finish(1).reason, FinishReason::kLength);
}

// ---- Logprobs ----

TEST_P(EngineLoopTest, LogprobsComeWithTheirIndex) {
  Harness h(Options());
  EngineRequest r = Request(1, Ids(8), 5);
  r.sampling.top_logprobs = 3;
  ASSERT_TRUE(h.Submit(r).ok());
  ASSERT_TRUE(h.Submit(Request(2, Ids(8), 5)).ok());
  h.RunUntilIdle();
  ASSERT_THAT(h.Get(1).logprobs, SizeIs(5));
  EXPECT_THAT(h.Get(2).logprobs, IsEmpty());
  for (size_t i = 0; i < 5; ++i) {
    const LogprobEvent& e = h.Get(1).logprobs[i];
    EXPECT_EQ(e.index, static_cast<int>(i));
    ASSERT_THAT(e.logprobs, SizeIs(4));
    EXPECT_EQ(e.logprobs[0].token, h.Get(1).tokens[i]);
    EXPECT_EQ(e.rank, 1);
  }
}

}  // namespace
}  // namespace penstock
