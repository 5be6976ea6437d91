#pragma once

// Regular expressions of tokenizer files: Oniguruma, with Unicode 16 whatever the version of the
// library. Immutable, usable from any thread. A search that backtracks too much is an error.

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

struct re_pattern_buffer;

namespace penstock {

using Span = std::pair<size_t, size_t>;  // byte offsets [begin, end)

class Regex {
 public:
  static absl::StatusOr<std::unique_ptr<const Regex>> Create(const std::string& pattern);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  // All matches from left to right; an empty one never directly behind another match. visit's
  // error ends the search.
  absl::Status FindAll(std::string_view text,
                       const std::function<absl::Status(Span match)>& visit) const;

 private:
  explicit Regex(re_pattern_buffer* regex) : regex_(regex) {}
  re_pattern_buffer* regex_;
};

// The pattern with \p{..}, \w and \d spelled out as Unicode 16 has them (for tests).
std::string WithUnicode16(std::string_view pattern);

}  // namespace penstock
