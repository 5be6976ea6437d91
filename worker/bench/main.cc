// penstock bench engine on its own: what it links is small enough to carry to a GPU machine.

#include <cstdio>

#include "common/base/exit_codes.h"
#include "worker/bench/engine_bench.h"

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.empty() || args[0] == "--help") {
    std::fputs(penstock::EngineBenchHelp().c_str(), stdout);
    return 0;
  }
  auto options = penstock::ParseEngineBench(args);
  if (!options.ok()) {
    std::fprintf(stderr, "%s\n", std::string(options.status().message()).c_str());
    return penstock::kExitUsage;
  }
  const absl::Status status = penstock::RunEngineBench(*options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return penstock::kExitFailure;
}
