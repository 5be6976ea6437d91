#pragma once

// The vocabulary in a GGUF's metadata (tokenizer.ggml.*) as a tokenizer: byte-level BPE ("gpt2"),
// SentencePiece BPE ("llama"), Unigram ("t5") and WordPiece ("bert").

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/formats/gguf.h"
#include "common/text/tokenizer_spec.h"

namespace penstock {

// InvalidArgument naming the key that is missing or wrong; Unimplemented for a vocabulary or
// pre-tokenizer that is not known, which is never guessed.
absl::StatusOr<TokenizerSpec> TokenizerSpecFromGguf(const GgufFile& file);

// The ids that end an answer: eos, eot and eom as the file names them; when it names no eot, also
// the control tokens that end a turn in the well-known chat formats (older converters wrote only
// the text's end). Ascending.
absl::StatusOr<std::vector<int32_t>> EosIdsFromGguf(const GgufFile& file);

// (name, source) of the chat templates, "default" first.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> TemplatesFromGguf(
    const GgufFile& file);

}  // namespace penstock
