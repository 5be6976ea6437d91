#pragma once

// What a command says about a flag that it does not have: the nearest one it knows, or, for a flag
// of vLLM's, what becomes of it here.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace penstock {

struct FlagInfo {
  std::string name;         // "--max-model-len"
  bool takes_value = true;  // false: a switch
  bool multiple = false;    // takes every following value up to the next flag
};

// InvalidArgument for flag ("--max-modellen" or "--max-modellen=3"): a sentence of its own for a
// vLLM flag that is not here, else the nearest of known, else a pointer to --help.
absl::Status UnknownFlagError(std::string_view flag, std::span<const FlagInfo> known);

}  // namespace penstock
