#pragma once

// Cuts normalised text into the pre-tokens that the model sees. Immutable, usable from any thread.

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/text/tokenizer_spec.h"

namespace penstock {

class PreTokenizerOp;

// A part of the text. at_start: its first character is the first one of the whole input.
struct PreToken {
  std::string_view text;
  bool at_start = false;
};
using PreTokenSink = std::function<absl::Status(const PreToken&)>;

class PreTokenizer {
 public:
  // bytes: the model takes raw bytes where a last ByteLevel step would hand out its alphabet.
  static absl::StatusOr<PreTokenizer> Create(const std::vector<PreTokenizerStep>& steps,
                                             bool bytes);
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Hands every pre-token to sink, in order; its text lives only during that call.
  absl::Status Run(const PreToken& piece, const PreTokenSink& sink) const;
  // Whether PreToken::at_start makes a difference.
  bool needs_start() const { return needs_start_; }
  bool can_shrink() const { return can_shrink_; }
  // Whether the chain's last step is ByteLevel: the model's pieces are in GPT-2's alphabet.
  static bool EndsInByteLevel(const std::vector<PreTokenizerStep>& steps);

 private:
  PreTokenizer();
  absl::Status RunFrom(size_t step, const PreToken& piece, const PreTokenSink& sink) const;

  std::vector<std::unique_ptr<const PreTokenizerOp>> ops_;
  bool needs_start_ = false;
  bool can_shrink_ = false;
};

}  // namespace penstock
