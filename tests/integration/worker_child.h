#pragma once

// A real penstock-worker as a child process of the test.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

namespace penstock {

class WorkerChild {
 public:
  // Starts it on directory/NAME.sock; its log goes to directory/NAME.log.
  WorkerChild(const std::string& directory, const std::string& name, std::vector<std::string> flags)
      : socket_(directory + "/" + name + ".sock"), log_(directory + "/" + name + ".log") {
    std::vector<std::string> args = {PENSTOCK_WORKER_BINARY, "--listen", address()};
    args.insert(args.end(), flags.begin(), flags.end());
    const std::string notify = directory + "/" + name + ".notify";
    OpenNotify(notify);
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const int log = open(log_.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
      dup2(log, STDOUT_FILENO);
      dup2(log, STDERR_FILENO);
      setenv("NOTIFY_SOCKET", notify.c_str(), 1);
      execv(argv[0], argv.data());
      _exit(127);
    }
  }
  ~WorkerChild() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    if (notify_fd_ >= 0) close(notify_fd_);
  }
  WorkerChild(const WorkerChild&) = delete;
  WorkerChild& operator=(const WorkerChild&) = delete;

  std::string address() const { return "unix:" + socket_; }
  const std::string& socket() const { return socket_; }
  void Signal(int signal) { kill(pid_, signal); }

  // Reads the readiness protocol until READY=1; false when it does not come.
  bool WaitReady() {
    char buffer[4096];
    for (;;) {
      pollfd fd = {.fd = notify_fd_, .events = POLLIN, .revents = 0};
      if (poll(&fd, 1, 60'000) <= 0) return false;
      const ssize_t size = recv(notify_fd_, buffer, sizeof(buffer), 0);
      if (size <= 0) return false;
      notices_.append(buffer, static_cast<size_t>(size)).push_back('\n');
      if (notices_.find("READY=1") != std::string::npos) return true;
    }
  }
  const std::string& notices() const { return notices_; }

  // The exit code, or 128 + the signal that ended it.
  int WaitExit() {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  void OpenNotify(const std::string& path) {
    notify_fd_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    unlink(path.c_str());
    EXPECT_EQ(bind(notify_fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }

  const std::string socket_, log_;
  pid_t pid_ = -1;
  int notify_fd_ = -1;
  std::string notices_;
};

}  // namespace penstock
