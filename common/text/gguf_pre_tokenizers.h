#pragma once

// What the names in `tokenizer.ggml.pre` stand for. A GGUF vocabulary carries no normaliser and no
// pattern, only this name; the steps are those of the family's own tokenizer.json.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/text/tokenizer_spec.h"

namespace penstock {

struct GgufPreTokenizer {
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> steps;
  bool ignore_merges = false;  // a pre-token that is a piece is that token
  bool add_bos = false;        // when the file does not say
};

// nullopt for a name that is not known: guessing would give wrong ids silently.
std::optional<GgufPreTokenizer> FindGgufPreTokenizer(std::string_view name);
// All known names, comma-separated, for messages.
std::string KnownGgufPreTokenizers();

}  // namespace penstock
