// Unigram of tokenizer.json: the best path by summed scores (Viterbi), unknown stretches fused.

#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/status.h"
#include "common/text/byte_level.h"
#include "common/text/piece_trie.h"
#include "common/text/token_model.h"
#include "common/text/utf8.h"

namespace penstock {
namespace {

constexpr double kUnknownPenalty = 10.0;

bool IsOneChar(std::string_view piece) {
  return !piece.empty() && Utf8Length(piece[0]) == piece.size();
}

class UnigramModel : public TokenModel {
 public:
  UnigramModel(const TokenizerModel& spec, ModelContext context)
      : vocabulary_(*context.vocabulary),
        blocked_(std::move(context.blocked)),
        unk_(spec.unk_id),
        byte_fallback_(spec.byte_fallback) {
    double min_score = std::numeric_limits<double>::infinity();
    std::vector<std::pair<std::string_view, int32_t>> pieces;
    for (int32_t id = 0; id < vocabulary_.end_id(); ++id) {
      if (!vocabulary_.Has(id)) continue;
      pieces.emplace_back(vocabulary_.Piece(id), id);
      min_score = std::min(min_score, vocabulary_.Score(id));
    }
    trie_.Build(std::move(pieces));
    unknown_score_ = min_score - kUnknownPenalty;
  }

  absl::Status Encode(std::string_view piece, bool plain, ModelScratch* /*scratch*/,
                      std::vector<int32_t>* out) const override {
    // Indexed by the byte where a piece ends.
    struct Best {
      double score = 0;
      int64_t begin = -1;
      int32_t id = 0;
    };
    std::vector<Best> best(piece.size() + 1);
    for (size_t pos = 0; pos < piece.size();) {
      const size_t width = Utf8Length(piece[pos]);
      const double so_far = best[pos].score;
      bool single = false;
      const auto offer = [&](size_t length, double score, int32_t id) {
        Best& target = best[pos + length];
        if (target.begin < 0 || so_far + score > target.score) {
          target = {so_far + score, static_cast<int64_t>(pos), id};
        }
      };
      trie_.Prefixes(piece, pos, [&](size_t length, int32_t id) {
        if (plain && Blocked(id)) return;
        offer(length, vocabulary_.Score(id), id);
        single = single || length == width;
      });
      if (!single) {
        if (!unk_.has_value()) {
          return InvalidArgument("the text has a character without a token, and no unk_id");
        }
        offer(width, unknown_score_, *unk_);
      }
      pos += width;
    }
    const size_t before = out->size();
    size_t unknown_end = 0;  // of the stretch being fused; 0: none
    for (size_t end = piece.size(); end > 0;) {
      const Best& node = best[end];
      const size_t begin = static_cast<size_t>(node.begin);
      if (unk_.has_value() && node.id == *unk_) {
        if (unknown_end == 0) unknown_end = end;
      } else {
        if (unknown_end > 0) Unknown(piece.substr(end, unknown_end - end), plain, out);
        unknown_end = 0;
        out->push_back(node.id);
      }
      end = begin;
    }
    if (unknown_end > 0) Unknown(piece.substr(0, unknown_end), plain, out);
    std::reverse(out->begin() + static_cast<ptrdiff_t>(before), out->end());
    return absl::OkStatus();
  }

 private:
  // Single characters stay allowed: without them plain text would lose them.
  bool Blocked(int32_t id) const {
    return static_cast<size_t>(id) < blocked_.size() && blocked_[id] &&
           !IsOneChar(vocabulary_.Piece(id));
  }

  // Appends the ids of an unknown stretch, the last one first.
  void Unknown(std::string_view text, bool plain, std::vector<int32_t>* out) const {
    const std::optional<int32_t> id = vocabulary_.Find(text);
    if (id.has_value() && !(plain && Blocked(*id))) {
      out->push_back(*id);
      return;
    }
    const size_t before = out->size();
    for (size_t i = text.size(); byte_fallback_ && i-- > 0;) {
      const auto byte = vocabulary_.Find(PieceOfByte(static_cast<uint8_t>(text[i])));
      if (!byte.has_value()) {
        out->resize(before);
        break;
      }
      out->push_back(*byte);
    }
    if (out->size() == before) out->push_back(*unk_);
  }

  const Vocabulary& vocabulary_;
  std::vector<bool> blocked_;
  PieceTrie trie_;
  std::optional<int32_t> unk_;
  bool byte_fallback_;
  double unknown_score_ = 0;
};

}  // namespace

ModelOr NewUnigramModel(TokenizerModel spec, ModelContext context) {
  if (spec.unk_id.has_value() && !context.vocabulary->Has(*spec.unk_id)) {
    return InvalidArgument("unk_id %d is not in a vocabulary of %d tokens", *spec.unk_id,
                           context.vocabulary->end_id());
  }
  return std::make_unique<UnigramModel>(spec, std::move(context));
}

}  // namespace penstock
