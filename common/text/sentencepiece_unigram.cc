// SentencePiece's Unigram: the best path by summed scores. Unlike tokenizer.json's it sums in f32,
// over the whole text, and user-defined pieces win by their length.

#include <algorithm>
#include <limits>
#include <utility>

#include "common/text/piece_trie.h"
#include "common/text/sentencepiece_pieces.h"
#include "common/text/utf8.h"

namespace penstock {
namespace {

constexpr float kUnknownPenalty = 10.0f;
constexpr float kResetScore = 100000.0f;  // sums beyond it start again at 0

class SentencePieceUnigram : public TokenModel {
 public:
  explicit SentencePieceUnigram(SentencePieces pieces) : pieces_(std::move(pieces)) {
    float min_score = std::numeric_limits<float>::max();
    std::vector<std::pair<std::string_view, int32_t>> all;
    for (int32_t id = 0; id < pieces_.vocabulary().end_id(); ++id) {
      if (!pieces_.vocabulary().Has(id)) continue;
      if (pieces_.type(id) == PieceType::kNormal) min_score = std::min(min_score, Score(id));
      if (pieces_.Usable(id, false) && !pieces_.Unused(id)) {
        all.emplace_back(pieces_.vocabulary().Piece(id), id);
      }
    }
    if (!all.empty()) trie_.Build(std::move(all));
    unknown_score_ = min_score - kUnknownPenalty;
  }

  absl::Status Encode(std::string_view text, bool plain, ModelScratch* /*scratch*/,
                      std::vector<int32_t>* out) const override {
    std::vector<Best> best(text.size() + 1);
    size_t frontier = 0;
    for (size_t pos = 0; pos < text.size();) {
      if (best[pos].score < -kResetScore || best[pos].score > kResetScore) {
        Rebase(pos, frontier, &best);
      }
      const float so_far = best[pos].score;
      const size_t width = std::min(Utf8Length(text[pos]), text.size() - pos);
      bool single = false;
      const auto offer = [&](size_t length, float score, int32_t id) {
        Best& target = best[pos + length];
        frontier = std::max(frontier, pos + length);
        const float sum = score + so_far;
        if (target.begin < 0 || sum > target.score) {
          target = {.score = sum, .begin = static_cast<int64_t>(pos), .id = id};
        }
      };
      trie_.Prefixes(text, pos, [&](size_t length, int32_t id) {
        if (!pieces_.Usable(id, plain)) return;
        offer(length, pieces_.type(id) == PieceType::kUserDefined ? UserScore(length) : Score(id),
              id);
        single = single || length == width;
      });
      if (!single) offer(width, unknown_score_, pieces_.unk());
      pos += width;
    }
    Append(text, best, out);
    return absl::OkStatus();
  }

 private:
  // The best path that ends at a byte.
  struct Best {
    float score = 0;
    int64_t begin = -1;  // of its last piece
    int32_t id = -1;
  };

  float Score(int32_t id) const { return static_cast<float>(pieces_.vocabulary().Score(id)); }
  static float UserScore(size_t length) {
    return static_cast<float>(0.1 * static_cast<double>(static_cast<int>(length) - 1));
  }

  static void Rebase(size_t pos, size_t frontier, std::vector<Best>* best) {
    const float offset = (*best)[pos].score;
    for (size_t i = pos; i <= frontier; ++i) {
      if (i == pos || (*best)[i].begin >= 0) (*best)[i].score -= offset;
    }
    (*best)[pos].score = 0;
  }

  void Append(std::string_view text, const std::vector<Best>& best,
              std::vector<int32_t>* out) const {
    std::vector<std::pair<size_t, size_t>> path;  // begin, end
    for (size_t end = text.size(); end > 0; end = static_cast<size_t>(best[end].begin)) {
      path.emplace_back(static_cast<size_t>(best[end].begin), end);
    }
    const size_t before = out->size();
    for (auto it = path.rbegin(); it != path.rend(); ++it) {
      const int32_t id = best[it->second].id;
      if (id == pieces_.unk()) {
        pieces_.AppendUnknown(text.substr(it->first, it->second - it->first), out);
      } else {
        out->push_back(id);
      }
    }
    pieces_.FuseUnknown(before, out);
  }

  SentencePieces pieces_;
  PieceTrie trie_;
  float unknown_score_ = 0;
};

}  // namespace

ModelOr NewSentencePieceUnigram(SentencePieces pieces) {
  return std::make_unique<SentencePieceUnigram>(std::move(pieces));
}

}  // namespace penstock
