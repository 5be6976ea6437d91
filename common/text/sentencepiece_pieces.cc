#include "common/text/sentencepiece_pieces.h"

#include "common/text/byte_level.h"

namespace penstock {

SentencePieces::SentencePieces(const TokenizerModel& spec, ModelContext context)
    : context_(std::move(context)), types_(spec.piece_types), unk_(*spec.unk_id) {
  if (!spec.byte_fallback) return;
  for (int byte = 0; byte < 256; ++byte) {
    bytes_.push_back(vocabulary().Find(PieceOfByte(static_cast<uint8_t>(byte))).value_or(unk_));
  }
}

bool SentencePieces::Usable(int32_t id, bool plain) const {
  if (id == unk_) return false;
  switch (type(id)) {
    case PieceType::kControl:
    case PieceType::kUnknown:
    case PieceType::kByte:
      return false;
    default:
      break;
  }
  return !plain || static_cast<size_t>(id) >= context_.blocked.size() || !context_.blocked[id];
}

void SentencePieces::AppendUnknown(std::string_view text, std::vector<int32_t>* out) const {
  if (bytes_.empty()) {
    out->push_back(unk_);
    return;
  }
  for (const char c : text) out->push_back(bytes_[static_cast<uint8_t>(c)]);
}

void SentencePieces::FuseUnknown(size_t begin, std::vector<int32_t>* out) const {
  if (!bytes_.empty()) return;
  size_t kept = begin;
  for (size_t i = begin; i < out->size(); ++i) {
    if (i > begin && (*out)[i] == unk_ && (*out)[i - 1] == unk_) continue;
    (*out)[kept++] = (*out)[i];
  }
  out->resize(kept);
}

}  // namespace penstock
