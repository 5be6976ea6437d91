#pragma once

// Reads Hugging Face's tokenizer.json. Untrusted: every wrong type, size or name is an
// InvalidArgument that says where; a kind of step we do not have is Unimplemented. truncation and
// padding are ignored.

#include <string_view>

#include "absl/status/statusor.h"
#include "common/json/json.h"
#include "common/text/tokenizer_spec.h"

namespace penstock {

// name is for messages.
absl::StatusOr<TokenizerSpec> SpecFromTokenizerJson(std::string_view text, const std::string& name);

// The parts, for the file's sections. Each value may be null. path is for messages.
absl::StatusOr<std::vector<NormalizerStep>> ParseNormalizer(const Json& value);
absl::StatusOr<std::vector<PreTokenizerStep>> ParsePreTokenizer(const Json& value);
absl::StatusOr<std::vector<DecoderStep>> ParseDecoder(const Json& value);
absl::StatusOr<std::vector<std::vector<TemplateItem>>> ParsePostProcessor(const Json& value);
// Takes the strings out of value.
absl::StatusOr<TokenizerModel> ParseTokenizerModel(Json value);

}  // namespace penstock
