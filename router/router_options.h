#pragma once

// What penstock-router was asked to do: one validated struct, from flags, the environment
// (PENSTOCK_ and the flag's name in capitals; VLLM_API_KEY) and a TOML file (--config). Names,
// units and meaning are vLLM's where it has the flag.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/flag_help.h"
#include "common/base/log.h"
#include "router/api/api_options.h"
#include "router/http/http_server.h"

namespace penstock {

struct RouterOptions {
  HttpServerOptions http;
  ApiOptions api;
  std::vector<std::string> workers;  // "host:port" or "unix:/path"
  std::string balance_policy = "power_of_two";
  std::string chat_template;  // a file's path, or empty
  std::chrono::milliseconds shutdown_timeout{30'000};
  LogLevel log_level = LogLevel::kInfo;
};

// Unset options: --help or --version was asked for, `text` is what to print, exit 0.
struct ParsedRouterOptions {
  std::optional<RouterOptions> options;
  std::string text;
};

// InvalidArgument names the flag, the value and what is accepted.
absl::StatusOr<ParsedRouterOptions> ParseRouterOptions(int argc, const char* const* argv);

// Every flag ParseRouterOptions knows, for the launcher that hands them on.
std::vector<FlagInfo> RouterFlags();

}  // namespace penstock
