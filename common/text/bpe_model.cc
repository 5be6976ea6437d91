// BPE of tokenizer.json and GGUF, and tiktoken's. Units are characters; when pre-tokens are bytes
// in GPT-2's alphabet, the bytes themselves.

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "common/base/status.h"
#include "common/text/bpe_merger.h"
#include "common/text/byte_level.h"
#include "common/text/token_model.h"
#include "common/text/utf8.h"

namespace penstock {
namespace {

constexpr int32_t kMissing = -1;
constexpr std::string_view kSpacePiece = "\xE2\x96\x81";

class BpeModel : public TokenModel {
 public:
  BpeModel(const TokenizerModel& spec, ModelContext context, BpeMerger merger,
           std::optional<int32_t> unk)
      : vocabulary_(*context.vocabulary),
        blocked_(std::move(context.blocked)),
        merger_(std::move(merger)),
        tiktoken_(spec.kind == TokenizerModel::Kind::kTiktoken),
        bytes_(context.want_bytes || tiktoken_),
        byte_fallback_(spec.byte_fallback),
        whole_first_(spec.ignore_merges || tiktoken_),
        fuse_unk_(spec.fuse_unk),
        unk_(unk),
        prefix_(spec.continuing_subword_prefix),
        suffix_(spec.end_of_word_suffix) {
    for (int b = 0; b < 256; ++b) {
      const std::string unit = tiktoken_ ? std::string(1, static_cast<char>(b))
                               : bytes_  ? ByteAlphabet::Get().CharOf(static_cast<uint8_t>(b))
                               : b < 128 ? std::string(1, static_cast<char>(b))
                                         : std::string();
      for (int place = 0; place < 4; ++place) {
        unit_[place][b] = unit.empty() ? kMissing : Unit(unit, (place & 1) != 0, (place & 2) != 0);
      }
      if (byte_fallback_) {
        byte_piece_[b] = vocabulary_.Find(PieceOfByte(static_cast<uint8_t>(b))).value_or(kMissing);
      }
    }
    // In plain text a control token may come neither from a merge nor as a whole pre-token.
    blocks_ = merger_.MakesOneOf(blocked_);
    for (size_t id = 0; whole_first_ && id < blocked_.size(); ++id) {
      blocks_ = blocks_ || (blocked_[id] && vocabulary_.Has(static_cast<int32_t>(id)));
    }
    FindCuts();
    can_shrink_ = !spec.byte_fallback && !bytes_;
    for (int b = 0; bytes_ && b < 256; ++b) can_shrink_ = can_shrink_ || unit_[0][b] == kMissing;
  }

  bool takes_bytes() const override { return bytes_; }
  bool can_shrink() const override { return can_shrink_; }

  absl::Status Encode(std::string_view piece, bool plain, ModelScratch* scratch,
                      std::vector<int32_t>* out) const override {
    const bool block = plain && blocks_;
    while (cuts_ && piece.size() > WordCache::kMaxBytes) {
      const size_t cut = NextCut(piece);
      if (cut == piece.size()) break;
      EncodeCached(piece.substr(0, cut), block, scratch, out);
      piece.remove_prefix(cut);
    }
    EncodeCached(piece, block, scratch, out);
    return absl::OkStatus();
  }

 private:
  void EncodeCached(std::string_view piece, bool block, ModelScratch* scratch,
                    std::vector<int32_t>* out) const {
    WordCache& cache = scratch->CacheFor(block);
    if (cache.Lookup(piece, out)) return;
    const size_t before = out->size();
    EncodeWord(piece, block, scratch, out);
    cache.Store(piece, out->data() + before, out->size() - before);
  }

  // Models without pre-tokens get whole texts. No merge crosses from a character to a U+2581
  // behind it when no piece has the two side by side: such places cut the text into words, which
  // merge by themselves.
  void FindCuts() {
    cuts_ = !bytes_ && !whole_first_ && prefix_.empty() && suffix_.empty() &&
            vocabulary_.Find(kSpacePiece).has_value();
    for (int32_t id = 0; cuts_ && id < vocabulary_.end_id(); ++id) {
      const std::string_view piece = vocabulary_.Piece(id);
      for (size_t at = piece.find(kSpacePiece, 1); at != std::string_view::npos;
           at = piece.find(kSpacePiece, at + 1)) {
        size_t before = at;
        glued_.push_back(PreviousChar(piece, &before));
      }
    }
    std::sort(glued_.begin(), glued_.end());
    glued_.erase(std::unique(glued_.begin(), glued_.end()), glued_.end());
  }
  size_t NextCut(std::string_view text) const {
    for (size_t at = text.find(kSpacePiece, 1); at != std::string_view::npos;
         at = text.find(kSpacePiece, at + 1)) {
      size_t before = at;
      if (!std::binary_search(glued_.begin(), glued_.end(), PreviousChar(text, &before))) return at;
    }
    return text.size();
  }

  // The id of a unit at its place in a word, or kMissing.
  int32_t Unit(const std::string& unit, bool first, bool last) const {
    if ((first || prefix_.empty()) && (!last || suffix_.empty())) {
      return vocabulary_.Find(unit).value_or(kMissing);
    }
    return vocabulary_.Find((first ? "" : prefix_) + unit + (last ? suffix_ : ""))
        .value_or(kMissing);
  }

  void EncodeWord(std::string_view piece, bool block, ModelScratch* scratch,
                  std::vector<int32_t>* out) const {
    if (whole_first_) {
      std::string_view key = piece;
      if (bytes_ && !tiktoken_) {
        scratch->text.clear();
        ByteAlphabet::Get().AppendEncoded(piece, &scratch->text);
        key = scratch->text;
      }
      const std::optional<int32_t> id = vocabulary_.Find(key);
      if (id.has_value() && !(block && Blocked(*id))) {
        out->push_back(*id);
        return;
      }
    }
    scratch->symbols.clear();
    if (bytes_) {
      ByteUnits(piece, &scratch->symbols);
    } else {
      CharUnits(piece, &scratch->symbols);
    }
    merger_.Run(scratch, block ? &blocked_ : nullptr);
    out->insert(out->end(), scratch->symbols.begin(), scratch->symbols.end());
  }

  bool Blocked(int32_t id) const {
    return static_cast<size_t>(id) < blocked_.size() && blocked_[id];
  }

  // Units without a piece are the unknown token, or nothing. Unknown ones stand in `pending` until
  // the next known unit: byte-fallback pieces overtake them, as in the reference.
  struct Pending {
    bool any = false;
  };
  void AddUnknown(Pending* pending, std::vector<int32_t>* symbols) const {
    if (!unk_.has_value()) return;
    if (pending->any && !fuse_unk_) symbols->push_back(*unk_);
    pending->any = true;
  }
  void FlushUnknown(Pending* pending, std::vector<int32_t>* symbols) const {
    if (pending->any) symbols->push_back(*unk_);
    pending->any = false;
  }

  void ByteUnits(std::string_view piece, std::vector<int32_t>* symbols) const {
    Pending pending;
    for (size_t i = 0; i < piece.size(); ++i) {
      const int place = (i == 0 ? 1 : 0) | (i + 1 == piece.size() ? 2 : 0);
      const int32_t id = unit_[place][static_cast<uint8_t>(piece[i])];
      if (id == kMissing) {
        AddUnknown(&pending, symbols);
        continue;
      }
      FlushUnknown(&pending, symbols);
      symbols->push_back(id);
    }
    FlushUnknown(&pending, symbols);
  }

  void CharUnits(std::string_view piece, std::vector<int32_t>* symbols) const {
    Pending pending;
    for (size_t pos = 0; pos < piece.size();) {
      const size_t n = Utf8Length(piece[pos]);
      const bool first = pos == 0, last = pos + n == piece.size();
      int32_t id;
      if (n == 1) {
        id = unit_[(first ? 1 : 0) | (last ? 2 : 0)][piece[pos] & 127];
      } else if (prefix_.empty() && suffix_.empty()) {
        id = vocabulary_.Find(piece.substr(pos, n)).value_or(kMissing);
      } else {
        id = Unit(std::string(piece.substr(pos, n)), first, last);
      }
      if (id != kMissing) {
        FlushUnknown(&pending, symbols);
        symbols->push_back(id);
      } else if (!FallBack(piece.substr(pos, n), first, last, symbols)) {
        AddUnknown(&pending, symbols);
      }
      pos += n;
    }
    FlushUnknown(&pending, symbols);
  }

  bool FallBack(std::string_view unit, bool first, bool last, std::vector<int32_t>* symbols) const {
    if (!byte_fallback_) return false;
    const std::string bytes =
        (first ? "" : prefix_) + std::string(unit) + (last ? suffix_ : std::string());
    for (const char b : bytes) {
      if (byte_piece_[static_cast<uint8_t>(b)] == kMissing) return false;
    }
    for (const char b : bytes) symbols->push_back(byte_piece_[static_cast<uint8_t>(b)]);
    return true;
  }

  const Vocabulary& vocabulary_;
  std::vector<bool> blocked_;
  BpeMerger merger_;
  bool tiktoken_, bytes_, byte_fallback_, whole_first_, fuse_unk_;
  bool blocks_ = false;  // a blocked id can come out at all
  bool can_shrink_ = false;
  std::optional<int32_t> unk_;
  std::string prefix_, suffix_;
  bool cuts_ = false;
  std::vector<char32_t> glued_;       // characters that some piece has right before a U+2581
  std::array<int32_t, 256> unit_[4];  // by place (1: first, 2: last) and byte
  std::array<int32_t, 256> byte_piece_{};
};

absl::StatusOr<BpeMerger> MergesOf(const TokenizerModel& spec, const Vocabulary& vocabulary) {
  BpeMerger merger(spec.merges.size());
  uint32_t rank = 0;
  const size_t prefix = spec.continuing_subword_prefix.size();
  std::string joined;
  for (const auto& [left, right] : spec.merges) {
    const std::optional<int32_t> l = vocabulary.Find(left), r = vocabulary.Find(right);
    if (right.size() < prefix) {
      return InvalidArgument("merge %d: '%s' is shorter than continuing_subword_prefix", rank,
                             right);
    }
    joined.assign(left).append(right, prefix);
    const std::optional<int32_t> made = vocabulary.Find(joined);
    for (const auto& [id, piece] :
         {std::pair(l, &left), std::pair(r, &right), std::pair(made, &std::as_const(joined))}) {
      if (!id.has_value()) {
        return InvalidArgument("merge %d: token '%s' is not in the vocabulary", rank, *piece);
      }
    }
    merger.Add(*l, *r, {rank++, *made});
  }
  return merger;
}

// tiktoken: any two pieces whose concatenation is a piece, the lowest id first.
BpeMerger MergesByRank(const Vocabulary& vocabulary) {
  struct Found {
    int32_t left, right, made;
  };
  std::vector<Found> merges;
  for (int32_t id = 0; id < vocabulary.end_id(); ++id) {
    const std::string_view piece = vocabulary.Piece(id);
    for (size_t cut = 1; cut < piece.size(); ++cut) {
      const std::optional<int32_t> l = vocabulary.Find(piece.substr(0, cut));
      const std::optional<int32_t> r =
          l.has_value() ? vocabulary.Find(piece.substr(cut)) : std::nullopt;
      if (r.has_value()) merges.push_back({*l, *r, id});
    }
  }
  BpeMerger merger(merges.size());
  for (const Found& merge : merges) {
    merger.Add(merge.left, merge.right, {static_cast<uint32_t>(merge.made), merge.made});
  }
  return merger;
}

}  // namespace

ModelOr NewBpeModel(TokenizerModel spec, ModelContext context) {
  const Vocabulary& vocabulary = *context.vocabulary;
  std::optional<int32_t> unk;
  if (spec.kind == TokenizerModel::Kind::kTiktoken) {
    for (int b = 0; b < 256; ++b) {
      if (!vocabulary.Find(std::string(1, static_cast<char>(b))).has_value()) {
        return InvalidArgument("a tiktoken vocabulary without a token for the byte %#x", b);
      }
    }
    return std::make_unique<BpeModel>(spec, std::move(context), MergesByRank(vocabulary), unk);
  }
  if (spec.unk_token.has_value()) unk = vocabulary.Find(*spec.unk_token);
  ASSIGN_OR_RETURN(BpeMerger merger, MergesOf(spec, vocabulary));
  return std::make_unique<BpeModel>(spec, std::move(context), std::move(merger), unk);
}

}  // namespace penstock
