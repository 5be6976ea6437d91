#include "worker/engine/mailbox.h"

#include <gtest/gtest.h>

#include <thread>

namespace penstock {
namespace {

StepEvents Tokens(uint64_t step, int32_t first, int count) {
  StepEvents events;
  events.step = step;
  for (int i = 0; i < count; ++i) events.tokens.push_back({RequestId{1}, first + i, first + i});
  return events;
}

TEST(MailboxTest, SignalsOnceUntilItIsEmptied) {
  int ready = 0;
  Mailbox box(
      1 << 20, [&] { ++ready; }, [] { FAIL(); });
  StepEvents out;
  EXPECT_FALSE(box.Take(&out));
  for (int round = 1; round <= 3; ++round) {
    StepEvents a = Tokens(7, 0, 2);
    StepEvents b = Tokens(8, 2, 3);
    FinishEvent finish;
    finish.id = RequestId{1};
    b.finished.push_back(finish);
    box.OnEvents(&a);
    box.OnEvents(&b);
    EXPECT_EQ(ready, round);
    ASSERT_TRUE(box.Take(&out));
    EXPECT_EQ(out.step, 8u);
    ASSERT_EQ(out.tokens.size(), 5u);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(out.tokens[static_cast<size_t>(i)].index, i);
    EXPECT_EQ(out.finished.size(), 1u);
    EXPECT_FALSE(box.Take(&out));
    EXPECT_TRUE(out.empty());
  }
}

TEST(MailboxTest, OverflowIsReportedOnceAndDropsTheRest) {
  int overflows = 0;
  Mailbox box(
      100 * sizeof(TokenEvent), [] {}, [&] { ++overflows; });
  for (int i = 0; i < 50; ++i) {
    StepEvents events = Tokens(1, 0, 10);
    box.OnEvents(&events);
  }
  EXPECT_EQ(overflows, 1);
  StepEvents out;
  EXPECT_FALSE(box.Take(&out));
}

TEST(MailboxTest, LogprobsCountTowardsTheBound) {
  int overflows = 0;
  Mailbox box(
      1000, [] {}, [&] { ++overflows; });
  StepEvents events;
  events.logprobs.push_back({RequestId{1}, 0, 1, std::vector<TokenLogprob>(200)});
  box.OnEvents(&events);
  EXPECT_EQ(overflows, 1);
}

TEST(MailboxTest, NothingIsLostBetweenTwoThreads) {
  Mailbox box(
      1 << 30, [] {}, [] { FAIL(); });
  constexpr int kSteps = 20'000;
  std::thread engine([&] {
    StepEvents events;
    for (int i = 0; i < kSteps; ++i) {
      events.Clear();
      events.tokens.push_back({RequestId{1}, 5, i});
      box.OnEvents(&events);
    }
  });
  int next = 0;
  StepEvents out;
  while (next < kSteps) {
    if (!box.Take(&out)) std::this_thread::yield();
    for (const TokenEvent& e : out.tokens) ASSERT_EQ(e.index, next++);
  }
  engine.join();
}

}  // namespace
}  // namespace penstock
