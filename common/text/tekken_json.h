#pragma once

// Mistral's tekken.json: pattern, byte pieces with ranks, and special tokens in front of them.

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/json/json.h"
#include "common/text/tokenizer_spec.h"

namespace penstock {

// True when this parsed JSON file is a tekken vocabulary and not a tokenizer.json.
bool LooksLikeTekken(const Json& file);

// The tokenizer as mistral-common runs it: special tokens are never found in text. For a served
// model, whose chat template writes them as text, set added_tokens' in_text afterwards
// (RecogniseTekkenSpecials). name is for messages.
absl::StatusOr<TokenizerSpec> SpecFromTekken(const Json& file, const std::string& name);

void RecogniseTekkenSpecials(TokenizerSpec* spec);

}  // namespace penstock
