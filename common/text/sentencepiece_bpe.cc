// SentencePiece's BPE: of all neighbours whose concatenation is a piece, the pair of the highest
// score (and of equal scores the leftmost) merges, until none can. Pieces marked unused may be
// passed through, and are taken apart again at the end.

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <queue>
#include <utility>

#include "common/text/piece_trie.h"
#include "common/text/sentencepiece_pieces.h"
#include "common/text/utf8.h"

namespace penstock {
namespace {

constexpr int kMaxDepth = 100;  // of taking unused pieces apart, as in the library

struct Symbol {
  int32_t prev = -1;
  int32_t next = -1;
  uint32_t begin = 0;
  uint32_t size = 0;  // 0: merged into another one
  bool frozen = false;
};

struct Pair {
  float score = 0;
  int32_t left = 0;
  int32_t right = 0;
  uint32_t size = 0;
  // std::priority_queue takes the greatest first.
  bool operator<(const Pair& other) const {
    return score != other.score ? score < other.score : left > other.left;
  }
};

struct TextHash {
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using Parts = boost::unordered_flat_map<std::string_view,
                                        std::pair<std::string_view, std::string_view>, TextHash>;

// One word's merging.
class Merging {
 public:
  Merging(const SentencePieces& pieces, std::string_view word, bool plain)
      : pieces_(pieces), word_(word), plain_(plain) {}

  void Split(const PieceTrie& user_defined) {
    for (size_t pos = 0; pos < word_.size();) {
      size_t length = 0;
      user_defined.Prefixes(word_, pos, [&](size_t n, int32_t id) {
        if (pieces_.Usable(id, plain_)) length = n;
      });
      Symbol symbol{.prev = static_cast<int32_t>(symbols_.size()) - 1,
                    .begin = static_cast<uint32_t>(pos),
                    .frozen = length > 0};
      if (length == 0) length = Utf8Length(word_[pos]);
      symbol.size = static_cast<uint32_t>(length);
      pos += length;
      symbol.next = pos < word_.size() ? static_cast<int32_t>(symbols_.size()) + 1 : -1;
      symbols_.push_back(symbol);
    }
  }

  void Run() {
    for (int32_t i = 0; i + 1 < static_cast<int32_t>(symbols_.size()); ++i) Offer(i, i + 1);
    while (!agenda_.empty()) {
      const Pair top = agenda_.top();
      agenda_.pop();
      Symbol& left = symbols_[top.left];
      Symbol& right = symbols_[top.right];
      if (left.size == 0 || right.size == 0 || left.size + right.size != top.size) continue;
      left.size = top.size;
      left.next = right.next;
      if (right.next >= 0) symbols_[right.next].prev = top.left;
      right.size = 0;
      Offer(left.prev, top.left);
      Offer(top.left, left.next);
    }
  }

  void Append(std::vector<int32_t>* out) const {
    for (int32_t i = symbols_.empty() ? -1 : 0; i >= 0; i = symbols_[i].next) {
      AppendPiece(Text(symbols_[i]), 0, out);
    }
  }

 private:
  std::string_view Text(const Symbol& symbol) const {
    return word_.substr(symbol.begin, symbol.size);
  }

  void Offer(int32_t left_index, int32_t right_index) {
    if (left_index < 0 || right_index < 0) return;
    const Symbol& left = symbols_[left_index];
    const Symbol& right = symbols_[right_index];
    if (left.frozen || right.frozen) return;
    const std::string_view text = word_.substr(left.begin, left.size + right.size);
    const std::optional<int32_t> id = pieces_.vocabulary().Find(text);
    if (!id.has_value() || !pieces_.Usable(*id, plain_)) return;
    agenda_.push({.score = static_cast<float>(pieces_.vocabulary().Score(*id)),
                  .left = left_index,
                  .right = right_index,
                  .size = left.size + right.size});
    if (pieces_.Unused(*id)) parts_[text] = {Text(left), Text(right)};
  }

  void AppendPiece(std::string_view text, int depth, std::vector<int32_t>* out) const {
    const std::optional<int32_t> id = pieces_.vocabulary().Find(text);
    if (!id.has_value() || !pieces_.Usable(*id, plain_)) {
      pieces_.AppendUnknown(text, out);
      return;
    }
    if (!pieces_.Unused(*id) || depth > kMaxDepth) {
      out->push_back(*id);
      return;
    }
    const auto it = parts_.find(text);
    if (it == parts_.end()) {
      pieces_.AppendUnknown(text, out);
      return;
    }
    AppendPiece(it->second.first, depth + 1, out);
    AppendPiece(it->second.second, depth + 1, out);
  }

  const SentencePieces& pieces_;
  std::string_view word_;
  bool plain_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Pair> agenda_;
  Parts parts_;
};

class SentencePieceBpe : public TokenModel {
 public:
  explicit SentencePieceBpe(SentencePieces pieces) : pieces_(std::move(pieces)) {
    std::vector<std::pair<std::string_view, int32_t>> user_defined;
    for (int32_t id = 0; id < pieces_.vocabulary().end_id(); ++id) {
      if (!pieces_.vocabulary().Has(id)) continue;
      const std::string_view piece = pieces_.vocabulary().Piece(id);
      if (pieces_.type(id) == PieceType::kUserDefined) user_defined.emplace_back(piece, id);
      if (pieces_.Usable(id, false) && CrossesWords(piece)) has_words_ = false;
    }
    if (!user_defined.empty()) user_defined_.Build(std::move(user_defined));
  }

  absl::Status Encode(std::string_view text, bool plain, ModelScratch* scratch,
                      std::vector<int32_t>* out) const override {
    const size_t before = out->size();
    WordCache& cache = scratch->CacheFor(plain);
    while (!text.empty()) {
      const std::string_view word = text.substr(0, has_words_ ? WordEnd(text) : text.size());
      text.remove_prefix(word.size());
      if (cache.Lookup(word, out)) continue;
      const size_t begin = out->size();
      Merging merging(pieces_, word, plain);
      merging.Split(user_defined_);
      merging.Run();
      merging.Append(out);
      cache.Store(word, out->data() + begin, out->size() - begin);
    }
    pieces_.FuseUnknown(before, out);
    return absl::OkStatus();
  }

 private:
  // A space symbol behind anything else: such a piece spans words.
  static bool CrossesWords(std::string_view piece) {
    while (piece.starts_with(kSpaceSymbol)) piece.remove_prefix(kSpaceSymbol.size());
    return piece.find(kSpaceSymbol) != std::string_view::npos;
  }
  // Where no piece can reach across: the first space symbol behind anything else.
  static size_t WordEnd(std::string_view text) {
    size_t pos = 0;
    while (text.substr(pos).starts_with(kSpaceSymbol)) pos += kSpaceSymbol.size();
    return std::min(text.find(kSpaceSymbol, pos), text.size());
  }

  SentencePieces pieces_;
  PieceTrie user_defined_;
  bool has_words_ = true;  // text can be cut at words, with the same result
};

}  // namespace

ModelOr NewSentencePieceBpe(SentencePieces pieces) {
  return std::make_unique<SentencePieceBpe>(std::move(pieces));
}

}  // namespace penstock
