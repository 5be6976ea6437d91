#pragma once

// What both kinds of SentencePiece model ask of their vocabulary. Private to them.

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/text/token_model.h"

namespace penstock {

inline constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // U+2581

class SentencePieces {
 public:
  // spec.piece_types is indexed by id here: SentencePiece's ids are dense.
  SentencePieces(const TokenizerModel& spec, ModelContext context);

  const Vocabulary& vocabulary() const { return *context_.vocabulary; }
  int32_t unk() const { return unk_; }
  PieceType type(int32_t id) const {
    return static_cast<size_t>(id) < types_.size() ? types_[id] : PieceType::kNormal;
  }
  // Whether text can become this piece: not a control, unknown or byte piece, and not one that
  // plain text must not yield.
  bool Usable(int32_t id, bool plain) const;
  // A piece that the model must not yield itself but may pass through (BPE), or not at all.
  bool Unused(int32_t id) const { return type(id) == PieceType::kUnused; }

  // Appends what stands for a stretch without a piece: its bytes' pieces, or the unknown piece.
  void AppendUnknown(std::string_view text, std::vector<int32_t>* out) const;
  // Unknown pieces next to each other, from index `begin` on, are one.
  void FuseUnknown(size_t begin, std::vector<int32_t>* out) const;

 private:
  ModelContext context_;
  std::vector<PieceType> types_;
  std::vector<int32_t> bytes_;  // by byte; empty without byte fallback
  int32_t unk_;
};

ModelOr NewSentencePieceBpe(SentencePieces pieces);
ModelOr NewSentencePieceUnigram(SentencePieces pieces);

}  // namespace penstock
