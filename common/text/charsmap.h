#pragma once

// SentencePiece's precompiled character map: a double-array trie of byte strings, each with a
// replacement in a pool of NUL-terminated strings. Immutable; checked when created, so that no
// lookup can leave the blob.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock {

class Charsmap {
 public:
  struct Match {
    size_t length = 0;  // bytes of text
    std::string_view replacement;
  };

  // blob: u32 (little endian) size of the trie in bytes, the trie, the pool. Empty: no entries.
  static absl::StatusOr<Charsmap> Create(std::string_view blob);

  // The shortest (as Hugging Face asks) or the longest (as sentencepiece does) entry that is a
  // prefix of text.
  std::optional<Match> Find(std::string_view text, bool longest) const;
  bool empty() const { return units_.empty(); }

 private:
  std::vector<uint32_t> units_;
  std::string pool_;
};

}  // namespace penstock
