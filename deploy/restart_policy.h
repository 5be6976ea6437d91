#pragma once

// When a child that ended is started again, and when not. Pure: the caller says what happened and
// when, so that every case is a table test.

#include <cstdint>

namespace penstock {

struct ChildExit {
  bool signalled = false;  // killed by a signal (value = the signal)
  int value = 0;           // exit code otherwise
  bool was_ready = false;  // it had reported ready in this run
  int64_t ran_ms = 0;
};

enum class RestartAction { kRestart, kStopAll };

struct RestartDecision {
  RestartAction action = RestartAction::kRestart;
  int64_t delay_ms = 0;
  int exit_code = 0;  // the launcher's, with kStopAll
};

// One per child. Delay: 100 ms doubled per consecutive failure, at most 10 s; a run that was ready
// for 10 s starts over. A child that says its flags, model or address are wrong (exit codes 2, 3,
// 4) before it was ever ready stops everything with that code, and so does the sixth failure in a
// row of a child that was never ready.
class RestartPolicy {
 public:
  RestartDecision OnExit(const ChildExit& exit);

 private:
  int failures_ = 0;  // in a row
  bool ever_ready_ = false;
};

}  // namespace penstock
