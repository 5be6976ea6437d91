// The supervisor with real processes: small shell scripts as children. Each case runs in a forked
// process of its own, because the supervisor owns the process's signals.

#include "deploy/supervisor.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "common/base/exit_codes.h"

namespace penstock {
namespace {

// A child that reports ready, says how it was stopped, and lives until then. $1 = its name, $2 =
// what it does on SIGTERM ("stop" or "ignore").
constexpr char kChild[] = R"(import os, signal, socket, sys, time
name, on_term, directory = sys.argv[1:4]
def stop(*_):
    open(directory + "/stopped", "a").write(name + "\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop if on_term == "stop" else signal.SIG_IGN)
open(directory + "/" + name + ".pids", "a").write(str(os.getpid()) + "\n")
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
while True:
    time.sleep(0.05)
)";

class SupervisorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/penstock-supervisor-XXXXXX";
    ASSERT_NE(mkdtemp(path), nullptr);
    dir_ = path;
    std::ofstream(dir_ + "/child.py") << kChild;
  }
  void TearDown() override { ASSERT_EQ(std::system(("rm -rf " + dir_).c_str()), 0); }

  // Runs the supervisor in a process of its own; returns its pid.
  pid_t Launch(std::vector<std::pair<std::string, std::string>> name_and_script) {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    auto supervisor = Supervisor::Create(
        {.runtime_dir = dir_, .stop_timeout = std::chrono::milliseconds(2000), .on_ready = [this] {
           std::ofstream(dir_ + "/all-ready") << "yes";
         }});
    if (!supervisor.ok()) _exit(99);
    int stage = 0;
    for (auto& [name, script] : name_and_script) {
      (*supervisor)
          ->Add({.name = name, .argv = {"/bin/bash", "-c", script}, .stop_stage = stage++});
    }
    _exit((*supervisor)->Run());
  }

  std::string Child(const std::string& name, const std::string& on_term) const {
    return "exec python3 " + dir_ + "/child.py " + name + " " + on_term + " " + dir_;
  }

  int Wait(pid_t pid) {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  std::string Read(const std::string& name) const {
    std::ifstream file(dir_ + "/" + name);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  bool WaitFor(const std::function<bool()>& condition) const {
    for (int i = 0; i < 1000; ++i) {
      if (condition()) return true;
      usleep(20'000);
    }
    return false;
  }

  std::string dir_;
};

TEST_F(SupervisorTest, RestartsAKilledChildAndStopsStageByStage) {
  const pid_t pid =
      Launch({{"router", Child("router", "stop")}, {"worker:0", Child("worker", "stop")}});
  ASSERT_TRUE(WaitFor([&] { return Read("all-ready") == "yes"; }));
  const std::string first = Read("worker.pids");
  kill(std::stoi(first), SIGKILL);
  ASSERT_TRUE(WaitFor([&] { return Read("worker.pids").size() > first.size(); }));
  kill(pid, SIGTERM);
  EXPECT_EQ(Wait(pid), kExitOk);
  EXPECT_EQ(Read("stopped"), "router\nworker\n");
}

TEST_F(SupervisorTest, AModelErrorEndsEverythingWithItsCode) {
  const pid_t pid = Launch({{"router", "trap 'exit 0' TERM; while :; do sleep 0.05; done"},
                            {"worker:0", "sleep 0.2; exit 3"}});
  EXPECT_EQ(Wait(pid), kExitModel);
}

TEST_F(SupervisorTest, KillsWhatDoesNotStop) {
  const pid_t pid = Launch({{"router", Child("router", "ignore")}});
  ASSERT_TRUE(WaitFor([&] { return Read("all-ready") == "yes"; }));
  kill(pid, SIGTERM);
  EXPECT_EQ(Wait(pid), kExitFailure);
}

TEST_F(SupervisorTest, ChildrenEndWithTheLauncher) {
  const pid_t pid = Launch({{"worker:0", Child("worker", "stop")}});
  ASSERT_TRUE(WaitFor([&] { return Read("all-ready") == "yes"; }));
  const int child = std::stoi(Read("worker.pids"));
  kill(pid, SIGKILL);
  EXPECT_EQ(Wait(pid), -SIGKILL);
  EXPECT_TRUE(WaitFor([&] { return kill(child, 0) != 0; }));
}

}  // namespace
}  // namespace penstock
