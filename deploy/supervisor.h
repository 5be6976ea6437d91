#pragma once

// Starts the router and the workers, restarts what ends, passes readiness on and stops everything
// in order. Single-threaded: one poll loop over signals, the children's notify socket and timers.

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/restart_policy.h"

namespace penstock {

struct ChildSpec {
  std::string name;                                      // "router", "worker:0"
  std::vector<std::string> argv;                         // argv[0] is the path of the program
  std::vector<std::pair<std::string, std::string>> env;  // added to the launcher's environment
  // Children of a lower stop stage get SIGTERM first and must end before the next stage is told.
  int stop_stage = 0;
};

class Supervisor {
 public:
  struct Options {
    std::string runtime_dir;                         // private (0700); holds the notify socket
    std::string parent_notify_socket;                // systemd's NOTIFY_SOCKET, or empty
    std::chrono::milliseconds stop_timeout{60'000};  // SIGKILL for a stage that takes longer
    // Called once, when every child has reported ready for the first time.
    std::function<void()> on_ready;
  };

  static absl::StatusOr<std::unique_ptr<Supervisor>> Create(Options options);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  void Add(ChildSpec spec);
  // Until a signal (or a child that cannot be started) ends everything. Returns the exit code.
  int Run();

 private:
  using Clock = std::chrono::steady_clock;
  struct Child {
    ChildSpec spec;
    RestartPolicy policy;
    pid_t pid = -1;  // -1 = not running
    bool ready = false;
    Clock::time_point started;
    Clock::time_point start_at;  // when pid is -1 and not stopping
  };

  explicit Supervisor(Options options) : options_(std::move(options)) {}
  void StartDueChildren();
  void Start(Child& child);
  void HandleSignals();
  void HandleNotifications();
  void ReapChildren();
  void OnChildEnd(Child& child, int wait_status);
  void RequestStop(int exit_code);
  void AdvanceStop();
  bool AnyRunning() const;
  int PollTimeoutMs() const;
  void ReportReadiness();

  Options options_;
  std::string notify_path_;
  int notify_fd_ = -1;
  int signal_fd_ = -1;
  std::vector<Child> children_;
  bool announced_ready_ = false;
  bool stopping_ = false;
  int stop_stage_ = -1;  // the stage that was told to stop last
  Clock::time_point stop_deadline_;
  int exit_code_ = 0;
};

}  // namespace penstock
