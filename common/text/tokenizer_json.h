#pragma once

// Reads Hugging Face's tokenizer.json. Untrusted: every wrong type, size or name is an
// InvalidArgument that says where; a kind of step we do not have is Unimplemented. truncation and
// padding are ignored.

#include <string_view>

#include "absl/status/statusor.h"
#include "common/json/json.h"
#include "common/text/tokenizer_spec.h"

namespace penstock {

absl::StatusOr<TokenizerSpec> ParseTokenizerJson(std::string_view text);

// Takes the named special tokens (bos_token, eos_token, ...) from a tokenizer_config.json or a
// special_tokens_map.json into spec.special_tokens; a name that is there already stays.
void AddSpecialTokenNames(const Json& config, TokenizerSpec* spec);

// The parts, for the file's sections. Each value may be null. path is for messages.
absl::StatusOr<std::vector<NormalizerStep>> ParseNormalizer(const Json& value);
absl::StatusOr<std::vector<PreTokenizerStep>> ParsePreTokenizer(const Json& value);
absl::StatusOr<std::vector<DecoderStep>> ParseDecoder(const Json& value);
absl::StatusOr<std::vector<std::vector<TemplateItem>>> ParsePostProcessor(const Json& value);
// Takes the strings out of value.
absl::StatusOr<TokenizerModel> ParseTokenizerModel(Json value);

}  // namespace penstock
