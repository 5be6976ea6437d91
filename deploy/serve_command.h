#pragma once

// "penstock serve MODEL": fetches the model, starts one router and the workers and supervises them.

#include <span>
#include <string>

namespace penstock {

// Returns the process's exit code (common/base/exit_codes.h). program: argv[0], beside which
// penstock-router and penstock-worker lie.
int RunServeCommand(const std::string& program, std::span<const std::string> arguments);

}  // namespace penstock
