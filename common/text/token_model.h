#pragma once

// The last stage of encoding: one pre-token to ids. Immutable; what a call needs to write is in
// the caller's ModelScratch.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/text/tokenizer_spec.h"
#include "common/text/vocabulary.h"
#include "common/text/word_cache.h"

namespace penstock {

struct ModelScratch {
  // plain: words of a user's text, which may become other ids.
  WordCache& CacheFor(bool plain) { return plain ? plain_cache : cache; }
  WordCache cache, plain_cache;
  std::vector<int32_t> symbols;
  std::vector<uint32_t> ranks;
  std::string text;
};

class TokenModel {
 public:
  virtual ~TokenModel() = default;

  // Appends the ids of piece. plain: never one of the blocked ids (a control token that the
  // vocabulary holds as a piece), except as the unknown token.
  virtual absl::Status Encode(std::string_view piece, bool plain, ModelScratch* scratch,
                              std::vector<int32_t>* out) const = 0;
  // Whether pre-tokens come as raw bytes and not in GPT-2's alphabet.
  virtual bool takes_bytes() const { return false; }
  // Whether a piece of text can vanish, or become one token however long it is.
  virtual bool can_shrink() const { return true; }
};

struct ModelContext {
  const Vocabulary* vocabulary = nullptr;  // outlives the model
  std::vector<bool> blocked;               // by id: not for plain text
  bool want_bytes = false;                 // pre-tokens would be bytes in GPT-2's alphabet
};

// spec.vocab is not looked at: it is in context.vocabulary already.
absl::StatusOr<std::unique_ptr<const TokenModel>> NewTokenModel(TokenizerModel spec,
                                                                ModelContext context);

// The makers behind NewTokenModel.
using ModelOr = absl::StatusOr<std::unique_ptr<const TokenModel>>;
ModelOr NewBpeModel(TokenizerModel spec, ModelContext context);        // kBpe, kTiktoken
ModelOr NewUnigramModel(TokenizerModel spec, ModelContext context);    // kUnigram
ModelOr NewWordPieceModel(TokenizerModel spec, ModelContext context);  // kWordPiece, kWordLevel
ModelOr NewSentencePieceModel(TokenizerModel spec, ModelContext context);

}  // namespace penstock
