#pragma once

// One step of a normalisation chain, and what the steps share. Private to the normalizer.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/text/normalizer.h"
#include "common/text/unicode/unicode.h"

namespace penstock {

class NormalizerOp {
 public:
  virtual ~NormalizerOp() = default;
  virtual absl::Status Apply(NormalizedText* text) const = 0;
};

// Builds what comes out of a step next to what goes in.
class TextBuilder {
 public:
  explicit TextBuilder(const NormalizedText& in) : in_(in) { out_.reserve(in.text.size() + 16); }

  // New text in the place of the input's character at byte `from`.
  void Put(char32_t c, size_t from);
  void PutText(std::string_view text, size_t from);
  // The input's bytes [begin, end) as they are.
  void Keep(size_t begin, size_t end);
  size_t size() const { return out_.size(); }
  // text is the one this was made for.
  void MoveTo(NormalizedText* text);

 private:
  uint32_t OriginOf(size_t from) const;

  const NormalizedText& in_;
  std::string out_;
  std::vector<uint32_t> origin_;
};

std::unique_ptr<const NormalizerOp> NewNormalFormOp(
    bool compose, bool compatible, unicode::Version version = unicode::Version::k9);
absl::StatusOr<std::unique_ptr<const NormalizerOp>> NewSentencePieceOp(const NormalizerStep& step);

}  // namespace penstock
