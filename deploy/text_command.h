#pragma once

// `penstock text`: what the model sees. Renders a chat with the model's own template and shows the
// text, its ids and pieces; with --jsonl a filter for scripts (common/text/text_jsonl.h).

#include <iosfwd>
#include <span>
#include <string>

namespace penstock {

// arguments: what follows "text" on the command line. Returns the process's exit code.
int RunTextCommand(std::span<const std::string> arguments);

// The same with its streams, for tests.
int RunTextCommand(std::span<const std::string> arguments, std::istream& in, std::ostream& out,
                   std::ostream& err);

}  // namespace penstock
