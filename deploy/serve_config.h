#pragma once

// --config FILE of "penstock serve": a TOML file whose keys are flag names, with or without dashes.

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/flag_help.h"

namespace penstock {

// The arguments with the file's entries in front, so that a typed flag wins; without --config the
// arguments as they are. A key that no binary knows is an error, as on the command line.
absl::StatusOr<std::vector<std::string>> ExpandConfig(std::span<const std::string> arguments,
                                                      std::span<const FlagInfo> router_flags,
                                                      std::span<const FlagInfo> worker_flags);

}  // namespace penstock
