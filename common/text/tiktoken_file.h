#pragma once

// OpenAI's .tiktoken files: lines of base64 bytes and a rank, nothing else. Pattern and special
// tokens come from the table of known files (by sha256), or from a config beside the file.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/json/json.h"
#include "common/text/tokenizer_spec.h"

namespace penstock {

// Cheap look at the first line.
bool LooksLikeTiktoken(std::string_view bytes);

// config: the tokenizer_config.json beside the file, or null. For an unknown file it must have
// "pat_str" (the pattern) or a "tokenizer_class" that is known, and names the special tokens in
// "special_tokens" (text -> id) or "added_tokens_decoder". name is for messages.
// InvalidArgument for damage, Unimplemented for an unknown file without such a config.
absl::StatusOr<TokenizerSpec> SpecFromTiktoken(std::string_view bytes, const Json* config,
                                               const std::string& name);

}  // namespace penstock
