// penstock bench engine on its own: what it links is small enough to carry to a GPU machine.

#include "worker/bench/engine_bench.h"

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  return penstock::RunEngineBenchCommand(args);
}
