// penstock-worker: one model on one device, behind gRPC.

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "common/base/exit_codes.h"
#include "common/base/log.h"
#include "worker/worker_options.h"
#include "worker/worker_process.h"

namespace {

// Before any thread exists, so that all of them inherit it: signals are read in one place.
void BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_SETMASK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // NOLINT: a peer that left shows as a write error
}

// SIGTERM when the parent ends. The parent may have ended before the call.
bool FollowParent(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  return getppid() == parent;
}

}  // namespace

int main(int argc, char** argv) {
  const pid_t parent = getppid();
  BlockSignals();
  const auto parsed = penstock::ParseWorkerOptions(argc, argv);
  if (!parsed.ok()) {
    std::fprintf(stderr, "penstock-worker: %s\n", std::string(parsed.status().message()).c_str());
    return penstock::kExitUsage;
  }
  if (!parsed->options.has_value()) {
    std::fputs(parsed->text.c_str(), stdout);
    return penstock::kExitOk;
  }
  penstock::InitLog("worker", parsed->options->log_level);
  if (parsed->options->die_with_parent && !FollowParent(parent)) return penstock::kExitOk;
  const char* notify_socket = std::getenv("NOTIFY_SOCKET");
  return penstock::RunWorker(*parsed->options, notify_socket == nullptr ? "" : notify_socket);
}
