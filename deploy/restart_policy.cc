#include "deploy/restart_policy.h"

#include <algorithm>

#include "common/base/exit_codes.h"

namespace penstock {
namespace {

constexpr int64_t kFirstDelayMs = 100;
constexpr int64_t kMaxDelayMs = 10'000;
constexpr int64_t kHealthyRunMs = 10'000;
constexpr int kMaxFailuresBeforeReady = 6;

bool CannotHelpToRetry(const ChildExit& exit) {
  return !exit.signalled &&
         (exit.value == kExitUsage || exit.value == kExitModel || exit.value == kExitBind);
}

}  // namespace

RestartDecision RestartPolicy::OnExit(const ChildExit& exit) {
  ever_ready_ = ever_ready_ || exit.was_ready;
  if (exit.was_ready && exit.ran_ms >= kHealthyRunMs) failures_ = 0;
  ++failures_;
  if (!ever_ready_) {
    if (CannotHelpToRetry(exit)) {
      return {.action = RestartAction::kStopAll, .delay_ms = 0, .exit_code = exit.value};
    }
    if (failures_ >= kMaxFailuresBeforeReady) {
      return {.action = RestartAction::kStopAll, .delay_ms = 0, .exit_code = kExitGaveUp};
    }
  }
  const int doublings = std::min(failures_ - 1, 10);
  return {.action = RestartAction::kRestart,
          .delay_ms = std::min(kFirstDelayMs << doublings, kMaxDelayMs)};
}

}  // namespace penstock
