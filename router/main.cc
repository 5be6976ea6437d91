// penstock-router: the OpenAI API over HTTP, in front of workers that speak gRPC.

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "common/base/exit_codes.h"
#include "common/base/log.h"
#include "router/router_options.h"
#include "router/router_process.h"

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

}  // namespace

int main(int argc, char** argv) {
  BlockSignals();
  const auto parsed = penstock::ParseRouterOptions(argc, argv);
  if (!parsed.ok()) {
    std::fprintf(stderr, "penstock-router: %s\n", std::string(parsed.status().message()).c_str());
    return penstock::kExitUsage;
  }
  if (!parsed->options.has_value()) {
    std::fputs(parsed->text.c_str(), stdout);
    return penstock::kExitOk;
  }
  penstock::InitLog("router", parsed->options->log_level);
  const char* notify_socket = std::getenv("NOTIFY_SOCKET");
  return penstock::RunRouter(*parsed->options, notify_socket == nullptr ? "" : notify_socket);
}
