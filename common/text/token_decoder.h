#pragma once

// Tokens back to text: the chain of decoders of a tokenizer. Immutable, usable from any thread.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/text/tokenizer_spec.h"

namespace penstock {

class DecoderOp;

class TokenDecoder {
 public:
  // No steps: tokens are joined by ' ', or as they are with join_plain. kSentencePiece is no step
  // of this chain: TokenizerImpl does it (Joining).
  static absl::StatusOr<TokenDecoder> Create(const std::vector<DecoderStep>& steps,
                                             bool join_plain);
  TokenDecoder(TokenDecoder&&) noexcept;
  TokenDecoder& operator=(TokenDecoder&&) noexcept;
  ~TokenDecoder();

  std::string Decode(std::vector<std::string> tokens) const;

 private:
  TokenDecoder();
  std::vector<std::unique_ptr<const DecoderOp>> ops_;
  std::string separator_;
};

}  // namespace penstock
