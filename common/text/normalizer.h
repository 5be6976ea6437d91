#pragma once

// The normalisation chain of a tokenizer. Immutable, usable from any thread.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/text/tokenizer_spec.h"

namespace penstock {

// Text under normalisation. With track on, origin[i] is the byte offset, in the text that went
// in, of the character that byte i comes from (the last one, where several became one).
struct NormalizedText {
  std::string text;
  bool track = false;
  std::vector<uint32_t> origin;
};

class NormalizerOp;

class Normalizer {
 public:
  static absl::StatusOr<Normalizer> Create(const std::vector<NormalizerStep>& steps);
  Normalizer(Normalizer&&) noexcept;
  Normalizer& operator=(Normalizer&&) noexcept;
  ~Normalizer();

  // In place. text is valid UTF-8 before and after. Error: a pattern's retry limit, or a result
  // larger than a replacement can be meant to make it.
  absl::Status Apply(NormalizedText* text) const;
  bool empty() const { return ops_.empty(); }
  // Whether the text can come out shorter in bytes than it went in.
  bool can_shrink() const { return can_shrink_; }

 private:
  Normalizer();
  std::vector<std::unique_ptr<const NormalizerOp>> ops_;
  bool can_shrink_ = false;
};

}  // namespace penstock
