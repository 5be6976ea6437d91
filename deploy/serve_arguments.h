#pragma once

// Splits the command line of "penstock serve" into the launcher's own part, the router's and the
// workers'. Pure: the flag tables are parameters.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/flag_help.h"

namespace penstock {

struct ServeArguments {
  std::string model;  // as typed: a directory, a GGUF file or a hub id
  std::string revision;
  int replicas = 1;
  bool help = false;
  std::vector<std::string> router;  // "--port", "8000", ...
  std::vector<std::string> worker;
};

// A flag known to both goes to both. InvalidArgument names the flag and the remedy.
absl::StatusOr<ServeArguments> SplitServeArguments(std::span<const std::string> arguments,
                                                   std::span<const FlagInfo> router_flags,
                                                   std::span<const FlagInfo> worker_flags);

// The launcher's own flags, for messages and --help.
std::span<const FlagInfo> LauncherFlags();

// The value of the last occurrence of flag ("--port") in arguments, or fallback.
std::string LastValue(std::span<const std::string> arguments, std::string_view flag,
                      std::string_view fallback);

}  // namespace penstock
