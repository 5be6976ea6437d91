// penstock: the command people type. Each subcommand is a file of its own.

#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "common/base/exit_codes.h"
#include "deploy/plan_command.h"
#include "deploy/serve_command.h"
#include "deploy/text_command.h"
#include "worker/bench/engine_bench.h"

namespace {

constexpr char kHelp[] = R"(penstock: serves open-weight language models over the OpenAI API.

  penstock serve MODEL    start a server (penstock serve --help)
  penstock plan MODEL     what fits on which card (penstock plan --help)
  penstock bench engine   time a model's shapes on the GPU (penstock bench engine --help)
  penstock text MODEL     show what the model sees: rendered prompt, ids, pieces
  penstock version

MODEL is a folder, a GGUF file or a hub id.
)";

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv, argv + argc);
  const std::string command = argc > 1 ? arguments[1] : "--help";
  const std::span<const std::string> rest =
      std::span(arguments).subspan(std::min<size_t>(2, arguments.size()));
  if (command == "serve") return penstock::RunServeCommand(arguments[0], rest);
  if (command == "plan") return penstock::RunPlanCommand(rest);
  if (command == "bench" && !rest.empty() && rest[0] == "engine") {
    return penstock::RunEngineBenchCommand(rest.subspan(1));
  }
  if (command == "text") return penstock::RunTextCommand(rest);
  if (command == "version" || command == "--version") {
    std::puts("penstock 0.1.0");
    return penstock::kExitOk;
  }
  if (command == "help" || command == "--help" || command == "-h") {
    std::fputs(kHelp, stdout);
    return argc > 1 ? penstock::kExitOk : penstock::kExitUsage;
  }
  std::fprintf(stderr,
               "penstock: no command '%s'; there are serve, plan, bench engine, text and version\n",
               command.c_str());
  return penstock::kExitUsage;
}
