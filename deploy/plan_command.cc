#include "deploy/plan_command.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "common/base/exit_codes.h"
#include "common/base/status.h"
#include "worker/model/hub.h"
#include "worker/model/plan.h"
#include "worker/model/weight_source.h"

namespace penstock {
namespace {

constexpr char kHelp[] = R"(Says what of a model fits on a card, from its configuration alone.

  penstock plan MODEL [--gpu NAME | --memory-gb N] [flags]

MODEL is a config.json, a folder, a GGUF file or a hub id.

  --gpu NAME                     l4, a10, rtx3090, rtx4090, rtx5090, rtx4000ada, rtx6000ada, l40s,
                                 a100-40, a100, h100, h200, b200 (default h200)
  --memory-gb N                  a card of N GB (10^9 bytes) instead
  --gpu-memory-utilization F     share of the card that is taken (default 0.9)
  --revision REV                 branch, tag or commit of a hub id
)";

struct PlanArguments {
  std::string model;
  std::string revision;
  std::string gpu = "h200";
  std::optional<double> memory_gb;
  double utilization = 0.9;
};

absl::StatusOr<double> PositiveNumber(const std::string& flag, const std::string& text,
                                      double max) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(value) || value <= 0.0 || value > max) {
    return InvalidArgument("%s is '%s', expected a number above 0 and up to %g", flag, text, max);
  }
  return value;
}

absl::Status SetFlag(const std::string& flag, const std::string& value, PlanArguments* parsed) {
  if (flag == "--gpu") {
    parsed->gpu = value;
  } else if (flag == "--revision") {
    parsed->revision = value;
  } else if (flag == "--memory-gb") {
    ASSIGN_OR_RETURN(parsed->memory_gb, PositiveNumber(flag, value, 100000));
  } else if (flag == "--gpu-memory-utilization") {
    ASSIGN_OR_RETURN(parsed->utilization, PositiveNumber(flag, value, 1.0));
  } else {
    return InvalidArgument("unknown flag %s; penstock plan --help lists them", flag);
  }
  return absl::OkStatus();
}

absl::StatusOr<PlanArguments> Parse(std::span<const std::string> arguments) {
  PlanArguments parsed;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (!argument.starts_with("--")) {
      if (!parsed.model.empty()) {
        return InvalidArgument("two models: %s and %s", parsed.model, argument);
      }
      parsed.model = argument;
      continue;
    }
    const size_t equals = argument.find('=');
    if (equals == std::string::npos && i + 1 == arguments.size()) {
      return InvalidArgument("%s needs a value", argument);
    }
    const std::string value =
        equals == std::string::npos ? arguments[++i] : argument.substr(equals + 1);
    RETURN_IF_ERROR(SetFlag(argument.substr(0, equals), value, &parsed));
  }
  if (parsed.model.empty()) {
    return InvalidArgument("which model? penstock plan MODEL; penstock plan --help tells more");
  }
  return parsed;
}

absl::StatusOr<PlanOptions> OptionsOf(const PlanArguments& arguments) {
  PlanOptions options;
  options.utilization = arguments.utilization;
  if (arguments.memory_gb.has_value()) {
    options.gpu = {"a card", static_cast<int64_t>(*arguments.memory_gb * 1e9)};
    return options;
  }
  ASSIGN_OR_RETURN(options.gpu, FindGpu(arguments.gpu));
  return options;
}

absl::StatusOr<ModelSpec> SpecOf(const PlanArguments& arguments) {
  ASSIGN_OR_RETURN(HubOptions options,
                   HubOptionsFromEnvironment([](const char* name) { return std::getenv(name); }));
  options.terminal = isatty(STDERR_FILENO) == 1;
  options.output = [](std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); };
  ASSIGN_OR_RETURN(const std::string path,
                   ResolveConfig(arguments.model, arguments.revision, options));
  return OpenModelSpec(path);
}

}  // namespace

int RunPlanCommand(std::span<const std::string> arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--help" || argument == "-h") {
      std::fputs(kHelp, stdout);
      return kExitOk;
    }
  }
  const auto parsed = Parse(arguments);
  const auto options =
      parsed.ok() ? OptionsOf(*parsed) : absl::StatusOr<PlanOptions>(parsed.status());
  if (!options.ok()) {
    std::fprintf(stderr, "penstock plan: %s\n", std::string(options.status().message()).c_str());
    return kExitUsage;
  }
  const auto spec = SpecOf(*parsed);
  if (!spec.ok()) {
    std::fprintf(stderr, "penstock plan: %s\n", std::string(spec.status().message()).c_str());
    return kExitModel;
  }
  std::fputs(PlanText(*spec, *options, MakePlan(*spec, *options)).c_str(), stdout);
  return kExitOk;
}

}  // namespace penstock
