#include "deploy/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "common/base/exit_codes.h"
#include "common/base/log.h"
#include "common/base/notify.h"
#include "common/base/status.h"

namespace penstock {
namespace {

sigset_t SupervisedSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signal);
  return set;
}

absl::StatusOr<int> BindNotifySocket(const std::string& path) {
  sockaddr_un address{};
  if (path.size() >= sizeof(address.sun_path)) {
    return InvalidArgument("runtime directory is too long for a Unix socket: %s", path);
  }
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return Internal("socket: %s", std::strerror(errno));
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  unlink(path.c_str());
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    const int error = errno;
    close(fd);
    return Internal("bind %s: %s", path, std::strerror(error));
  }
  // The kernel then names the sender of every datagram, so a child is known by its pid.
  const int on = 1;
  if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0) {
    const int error = errno;
    close(fd);
    return Internal("SO_PASSCRED: %s", std::strerror(error));
  }
  return fd;
}

// In the child between fork and exec: only async-signal-safe calls.
[[noreturn]] void ExecChild(const std::vector<char*>& argv, const std::vector<char*>& env,
                            pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(kExitFailure);  // the launcher died before prctl
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve(argv[0], argv.data(), env.data());
  _exit(127);
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> Environment(
    const std::vector<std::pair<std::string, std::string>>& overrides) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    const bool overridden = std::any_of(overrides.begin(), overrides.end(),
                                        [&](const auto& pair) { return pair.first == name; });
    if (!overridden) result.emplace_back(text);
  }
  for (const auto& [name, value] : overrides) result.push_back(name + "=" + value);
  return result;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Supervisor>> Supervisor::Create(Options options) {
  std::unique_ptr<Supervisor> self(new Supervisor(std::move(options)));
  self->notify_path_ = self->options_.runtime_dir + "/notify.sock";
  ASSIGN_OR_RETURN(self->notify_fd_, BindNotifySocket(self->notify_path_));
  const sigset_t signals = SupervisedSignals();
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  self->signal_fd_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (self->signal_fd_ < 0) return Internal("signalfd: %s", std::strerror(errno));
  return self;
}

Supervisor::~Supervisor() {
  if (notify_fd_ >= 0) close(notify_fd_);
  if (signal_fd_ >= 0) close(signal_fd_);
  unlink(notify_path_.c_str());
}

void Supervisor::Add(ChildSpec spec) {
  spec.env.emplace_back("NOTIFY_SOCKET", notify_path_);
  children_.push_back({.spec = std::move(spec), .policy = {}, .start_at = Clock::now()});
}

int Supervisor::Run() {
  while (!(stopping_ && !AnyRunning())) {
    if (!stopping_) StartDueChildren();
    std::array<pollfd, 2> fds = {{{signal_fd_, POLLIN, 0}, {notify_fd_, POLLIN, 0}}};
    if (poll(fds.data(), fds.size(), PollTimeoutMs()) < 0 && errno != EINTR) return kExitFailure;
    HandleNotifications();  // before the reaping, so that "ready, then dead" is seen in that order
    HandleSignals();
    ReapChildren();
    if (stopping_) AdvanceStop();
  }
  return exit_code_;
}

void Supervisor::StartDueChildren() {
  for (Child& child : children_) {
    if (child.pid < 0 && child.start_at <= Clock::now()) Start(child);
  }
}

void Supervisor::Start(Child& child) {
  std::vector<std::string> argv = child.spec.argv;
  std::vector<std::string> env = Environment(child.spec.env);
  const std::vector<char*> argv_pointers = Pointers(argv);
  const std::vector<char*> env_pointers = Pointers(env);
  const pid_t parent = getpid();
  child.ready = false;
  child.started = Clock::now();
  const pid_t pid = fork();
  if (pid == 0) ExecChild(argv_pointers, env_pointers, parent);
  if (pid < 0) {
    LogError("cannot start %s: %s", child.spec.name, std::strerror(errno));
    child.start_at = Clock::now() + std::chrono::seconds(1);
    return;
  }
  child.pid = pid;
  LogDebug("started %s pid=%d", child.spec.name, pid);
}

void Supervisor::HandleSignals() {
  signalfd_siginfo info;
  while (read(signal_fd_, &info, sizeof(info)) == sizeof(info)) {
    const auto signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;
    if (signal == SIGHUP) {
      for (const Child& child : children_) {
        if (child.pid > 0) kill(child.pid, SIGHUP);
      }
      continue;
    }
    if (stopping_) {
      LogWarning("second signal: stopping at once");
      for (const Child& child : children_) {
        if (child.pid > 0) kill(child.pid, SIGKILL);
      }
      exit_code_ = kExitFailure;
      continue;
    }
    LogInfo("%s: finishing running requests (a second signal stops at once)",
            signal == SIGTERM ? "SIGTERM" : "SIGINT");
    RequestStop(kExitOk);
  }
}

void Supervisor::HandleNotifications() {
  std::array<char, 4096> data;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred))> control;
  while (true) {
    iovec vector = {data.data(), data.size()};
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t size = recvmsg(notify_fd_, &message, 0);
    if (size < 0) return;
    pid_t sender = 0;
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (header != nullptr && header->cmsg_type == SCM_CREDENTIALS) {
      ucred credentials;
      std::memcpy(&credentials, CMSG_DATA(header), sizeof(credentials));
      sender = credentials.pid;
    }
    const std::string_view text(data.data(), static_cast<size_t>(size));
    for (Child& child : children_) {
      if (child.pid != sender) continue;
      if (text.find("READY=1") != std::string_view::npos) child.ready = true;
      // Loading may be long: systemd's start limit is pushed back as the child asks.
      if (text.find("EXTEND_TIMEOUT_USEC=") != std::string_view::npos && !announced_ready_) {
        NotifySupervisor(options_.parent_notify_socket, text);
      }
    }
    ReportReadiness();
  }
}

void Supervisor::ReportReadiness() {
  if (announced_ready_) return;
  const bool all = std::all_of(children_.begin(), children_.end(),
                               [](const Child& child) { return child.ready; });
  if (!all) return;
  announced_ready_ = true;
  NotifySupervisor(options_.parent_notify_socket, "READY=1\nSTATUS=serving");
  if (options_.on_ready) options_.on_ready();
}

void Supervisor::ReapChildren() {
  for (Child& child : children_) {
    int status = 0;
    if (child.pid > 0 && waitpid(child.pid, &status, WNOHANG) == child.pid) {
      OnChildEnd(child, status);
    }
  }
}

void Supervisor::OnChildEnd(Child& child, int wait_status) {
  const ChildExit exit = {
      .signalled = WIFSIGNALED(wait_status),
      .value = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : WEXITSTATUS(wait_status),
      .was_ready = child.ready,
      .ran_ms = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - child.started)
                    .count()};
  child.pid = -1;
  child.ready = false;
  if (stopping_) {
    if (!(exit.signalled == false && exit.value == 0)) {
      LogWarning("%s ended with %s %d", child.spec.name, exit.signalled ? "signal" : "exit code",
                 exit.value);
      if (exit_code_ == kExitOk) exit_code_ = kExitFailure;
    }
    return;
  }
  const RestartDecision decision = child.policy.OnExit(exit);
  if (decision.action == RestartAction::kStopAll) {
    LogError("%s ended with %s %d before it was ready: giving up", child.spec.name,
             exit.signalled ? "signal" : "exit code", exit.value);
    RequestStop(decision.exit_code);
    return;
  }
  LogWarning("%s ended with %s %d: starting it again in %d ms", child.spec.name,
             exit.signalled ? "signal" : "exit code", exit.value, decision.delay_ms);
  child.start_at = Clock::now() + std::chrono::milliseconds(decision.delay_ms);
}

void Supervisor::RequestStop(int exit_code) {
  stopping_ = true;
  exit_code_ = exit_code;
  NotifySupervisor(options_.parent_notify_socket, "STOPPING=1");
  stop_deadline_ = Clock::now();
}

// Stage by stage: the router drains first, the workers are told when it has ended.
void Supervisor::AdvanceStop() {
  int lowest = INT_MAX;
  for (const Child& child : children_) {
    if (child.pid > 0) lowest = std::min(lowest, child.spec.stop_stage);
  }
  if (lowest == INT_MAX) return;
  if (lowest > stop_stage_) {
    stop_stage_ = lowest;
    stop_deadline_ = Clock::now() + options_.stop_timeout;
    for (const Child& child : children_) {
      if (child.pid > 0 && child.spec.stop_stage == lowest) kill(child.pid, SIGTERM);
    }
  } else if (Clock::now() >= stop_deadline_) {
    for (const Child& child : children_) {
      if (child.pid > 0 && child.spec.stop_stage <= lowest) {
        LogError("%s did not stop in time: killed", child.spec.name);
        kill(child.pid, SIGKILL);
      }
    }
    stop_deadline_ = Clock::now() + std::chrono::seconds(5);
  }
}

bool Supervisor::AnyRunning() const {
  return std::any_of(children_.begin(), children_.end(),
                     [](const Child& child) { return child.pid > 0; });
}

int Supervisor::PollTimeoutMs() const {
  Clock::time_point next = Clock::now() + std::chrono::seconds(60);
  if (stopping_) next = std::min(next, stop_deadline_);
  for (const Child& child : children_) {
    if (!stopping_ && child.pid < 0) next = std::min(next, child.start_at);
  }
  const auto wait = std::chrono::duration_cast<std::chrono::milliseconds>(next - Clock::now());
  return static_cast<int>(std::max<int64_t>(wait.count() + 1, 1));
}

}  // namespace penstock
