#pragma once

// A compiled Jinja template: renders as jinja2 3.1.6 does in the sandbox that transformers sets up
// for chat templates (trim_blocks, lstrip_blocks, loop controls, the `generation` tag, autoescape
// off), and marks which bytes of the result came from the user. Immutable: any thread may render.
//
// Not there, an error at load with line and column: extends, include, import, autoescape true,
// blocks that are scoped or required or use self or super, the filters pprint, random, striptags,
// urlize and wordwrap, integers beyond 64 bits. Not there, an error when it runs: arithmetic beyond
// 64 bits (such numbers from JSON print as they are), complex numbers, lipsum(), encode(),
// translate().

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/text/marked_text.h"

namespace penstock::jinja {

class Value;

struct Limits {
  size_t max_output_bytes = size_t{64} << 20;  // of the result and of any string on the way
  int64_t max_steps = 20'000'000;              // loop iterations and items handled by filters
  std::chrono::milliseconds max_time{5000};
};

struct RenderOptions {
  Limits limits;
  std::function<std::tm()> clock;  // for strftime_now; empty: the machine's local time
};

using Variables = std::vector<std::pair<std::string, Value>>;

class Program {
 public:
  // InvalidArgument for a syntax error, Unimplemented for what is not supported; both name line and
  // column.
  static absl::StatusOr<std::shared_ptr<const Program>> Compile(std::string source);
  ~Program();

  // InvalidArgument: the template failed; what it passed to raise_exception comes as it is, other
  // messages name line and kind. ResourceExhausted: a limit was reached.
  absl::StatusOr<MarkedText> Render(const Variables& variables, const RenderOptions& options) const;

  const std::string& source() const { return source_; }
  // The literal text of the template and all its string constants, in order.
  const std::vector<std::string>& literals() const { return literals_; }

 private:
  struct Code;
  Program();
  std::string source_;
  std::vector<std::string> literals_;
  std::unique_ptr<Code> code_;
};

}  // namespace penstock::jinja
