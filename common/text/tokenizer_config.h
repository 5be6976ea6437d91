#pragma once

// tokenizer_config.json and its companions: what they add to a tokenizer that another file defines.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/json/json.h"
#include "common/text/tokenizer_spec.h"

namespace penstock {

// Parses one of a model's JSON files; the error names it.
absl::StatusOr<Json> ParseModelJson(std::string_view text, const std::string& name);

// The text of a token written as "x" or {"content": "x", ...}; empty for null and anything else.
std::string TokenText(const Json* token);

// Named special tokens ("bos_token", ...) of tokenizer_config.json or special_tokens_map.json:
// replace or join spec's; bos and eos ids follow them.
void NameSpecialTokens(const Json& config, TokenizerSpec* spec);

// For tokenizers that are not tokenizer.json (which has all of this itself): the tokens of
// added_tokens_decoder, and add_bos_token, add_eos_token.
absl::Status ApplyTokenizerConfig(const Json& config, const std::string& name, TokenizerSpec* spec);

// added_tokens.json: {"<tok>": id, ...}.
absl::Status AddTokens(const Json& added, const std::string& name, TokenizerSpec* spec);

// chat_template of a config: one source, or a list of {name, template}. "default" first.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> TemplatesOfConfig(
    const Json& config, const std::string& name);

}  // namespace penstock
