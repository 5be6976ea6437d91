#pragma once

// SentencePiece's tokenizer.model: a protobuf (ModelProto) read by a small reader of its own.

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/text/tokenizer_spec.h"

namespace penstock {

// Cheap look at the first bytes: a ModelProto begins with a piece that begins with its text.
bool LooksLikeSentencePiece(std::string_view bytes);

// The tokenizer as the sentencepiece library runs it: control pieces ("<s>") are never found in
// text. name is for messages. InvalidArgument for damage; Unimplemented for WORD and CHAR models
// and denormalisers.
absl::StatusOr<TokenizerSpec> SpecFromSentencePiece(std::string_view bytes,
                                                    const std::string& name);

// For a served model, whose chat template writes control pieces as text: control pieces and
// user-defined markers become added tokens (recognised in template text, never in a user's).
void RecogniseControlPieces(TokenizerSpec* spec);

}  // namespace penstock
