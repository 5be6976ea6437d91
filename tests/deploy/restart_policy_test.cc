#include "deploy/restart_policy.h"

#include <gtest/gtest.h>

#include "common/base/exit_codes.h"

namespace penstock {
namespace {

TEST(RestartPolicy, BacksOffToTenSecondsAndForgetsAfterAHealthyRun) {
  RestartPolicy policy;
  policy.OnExit({.signalled = true, .value = 9, .was_ready = true, .ran_ms = 60'000});
  int64_t last = 0;
  for (const int64_t expected : {200, 400, 800, 1600, 3200, 6400, 10'000, 10'000}) {
    last = policy.OnExit({.signalled = true, .value = 11, .ran_ms = 5}).delay_ms;
    EXPECT_EQ(last, expected);
  }
  const RestartDecision healthy =
      policy.OnExit({.signalled = true, .value = 9, .was_ready = true, .ran_ms = 60'000});
  EXPECT_EQ(healthy.action, RestartAction::kRestart);
  EXPECT_EQ(healthy.delay_ms, 100);
}

TEST(RestartPolicy, WrongFlagsModelOrAddressStopEverythingAtFirstStart) {
  for (const int code : {kExitUsage, kExitModel, kExitBind}) {
    RestartPolicy policy;
    const RestartDecision decision = policy.OnExit({.value = code, .ran_ms = 10});
    EXPECT_EQ(decision.action, RestartAction::kStopAll);
    EXPECT_EQ(decision.exit_code, code);
  }
  // The same code as a signal number, or after a good run, is worth another try.
  RestartPolicy signalled;
  EXPECT_EQ(signalled.OnExit({.signalled = true, .value = 2}).action, RestartAction::kRestart);
  RestartPolicy served;
  EXPECT_EQ(served.OnExit({.value = kExitModel, .was_ready = true, .ran_ms = 100}).action,
            RestartAction::kRestart);
}

TEST(RestartPolicy, GivesUpOnAChildThatNeverGetsReady) {
  RestartPolicy policy;
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(policy.OnExit({.value = 1, .ran_ms = 5}).action, RestartAction::kRestart);
  }
  const RestartDecision last = policy.OnExit({.value = 1, .ran_ms = 5});
  EXPECT_EQ(last.action, RestartAction::kStopAll);
  EXPECT_EQ(last.exit_code, kExitGaveUp);
}

}  // namespace
}  // namespace penstock
