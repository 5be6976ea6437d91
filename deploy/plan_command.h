#pragma once

// "penstock plan MODEL": what fits on which card, without loading anything.

#include <span>
#include <string>

namespace penstock {

// Prints to stdout; returns the exit code. arguments: what followed "plan".
int RunPlanCommand(std::span<const std::string> arguments);

}  // namespace penstock
