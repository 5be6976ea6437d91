// What sentencepiece itself does with a .model file, where it differs from tokenizer.json.

#include "common/base/status.h"
#include "common/text/normalizer_op.h"
#include "common/text/token_model.h"

namespace penstock {

absl::StatusOr<std::unique_ptr<const NormalizerOp>> NewSentencePieceOp(
    const NormalizerStep& /*step*/) {
  return Unimplemented("sentencepiece normaliser");
}

ModelOr NewSentencePieceModel(TokenizerModel /*spec*/, ModelContext /*context*/) {
  return Unimplemented("sentencepiece model");
}

}  // namespace penstock
