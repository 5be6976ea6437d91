// How sentencepiece normalises for a .model file, where it differs from tokenizer.json: the longest
// rule of the charsmap at every place, user-defined symbols left alone, white space escaped.

#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "common/text/charsmap.h"
#include "common/text/normalizer_op.h"
#include "common/text/piece_trie.h"
#include "common/text/sentencepiece_pieces.h"
#include "common/text/token_model.h"
#include "common/text/utf8.h"

namespace penstock {
namespace {

class SentencePieceOp : public NormalizerOp {
 public:
  SentencePieceOp(const NormalizerStep& step, Charsmap charsmap)
      : charsmap_(std::move(charsmap)),
        dummy_prefix_(step.add_dummy_prefix && !step.treat_whitespace_as_suffix),
        dummy_suffix_(step.add_dummy_prefix && step.treat_whitespace_as_suffix),
        squeeze_(step.remove_extra_whitespaces),
        space_(step.escape_whitespaces ? kSpaceSymbol : " "),
        symbols_(step.user_symbols) {
    std::vector<std::pair<std::string_view, int32_t>> pieces;
    for (const std::string& symbol : symbols_) pieces.emplace_back(symbol, 0);
    if (!pieces.empty()) trie_.Build(std::move(pieces));
  }

  absl::Status Apply(NormalizedText* text) const override {
    const std::string in = std::move(text->text);
    Output out{.track = text->track, .in_origin = text->origin};
    out.text.reserve(in.size() + in.size() / 2);
    size_t pos = 0;
    while (squeeze_ && pos < in.size()) {
      const Step step = Next(in, pos);
      if (step.text != " ") break;
      pos += step.length;
    }
    if (pos < in.size()) Rest(in, pos, &out);
    text->text = std::move(out.text);
    text->origin = std::move(out.origin);
    return absl::OkStatus();
  }

 private:
  struct Step {
    std::string_view text;
    size_t length = 0;  // bytes of input
  };
  struct Output {
    bool track = false;
    const std::vector<uint32_t>& in_origin;
    std::string text;
    std::vector<uint32_t> origin;
    void Put(std::string_view what, size_t from) {
      text += what;
      if (track) origin.resize(text.size(), in_origin[std::min(from, in_origin.size() - 1)]);
    }
  };

  Step Next(std::string_view in, size_t pos) const {
    size_t symbol = 0;
    trie_.Prefixes(in, pos, [&](size_t length, int32_t) { symbol = length; });
    if (symbol > 0) return {in.substr(pos, symbol), symbol};
    const auto match = charsmap_.Find(in.substr(pos), /*longest=*/true);
    if (match.has_value()) return {match->replacement, match->length};
    const size_t width = Utf8Length(in[pos]);
    return {in.substr(pos, width), width};
  }

  void Rest(std::string_view in, size_t pos, Output* out) const {
    if (dummy_prefix_) out->Put(space_, pos);
    bool after_space = squeeze_;
    while (pos < in.size()) {
      const Step step = Next(in, pos);
      std::string_view piece = step.text;
      while (after_space && piece.starts_with(' ')) piece.remove_prefix(1);
      while (!piece.empty()) {
        const size_t space = std::min(piece.find(' '), piece.size());
        if (space > 0) out->Put(piece.substr(0, space), pos);
        if (space < piece.size()) out->Put(space_, pos);
        after_space = space + 1 == piece.size();
        piece.remove_prefix(std::min(space + 1, piece.size()));
      }
      pos += step.length;
      if (!squeeze_) after_space = false;
    }
    while (squeeze_ && out->text.ends_with(space_)) {
      out->text.resize(out->text.size() - space_.size());
      if (out->track) out->origin.resize(out->text.size());
    }
    if (dummy_suffix_) out->Put(space_, in.size() - 1);
  }

  Charsmap charsmap_;
  bool dummy_prefix_, dummy_suffix_, squeeze_;
  std::string_view space_;
  std::vector<std::string> symbols_;
  PieceTrie trie_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<const NormalizerOp>> NewSentencePieceOp(const NormalizerStep& step) {
  ASSIGN_OR_RETURN(Charsmap charsmap, Charsmap::Create(step.charsmap));
  return std::make_unique<SentencePieceOp>(step, std::move(charsmap));
}

ModelOr NewSentencePieceModel(TokenizerModel spec, ModelContext context) {
  if (!spec.unk_id.has_value() || !context.vocabulary->Has(*spec.unk_id)) {
    return InvalidArgument("a SentencePiece model needs an unknown piece");
  }
  const bool unigram = spec.kind == TokenizerModel::Kind::kSentencePieceUnigram;
  SentencePieces pieces(spec, std::move(context));
  return unigram ? NewSentencePieceUnigram(std::move(pieces))
                 : NewSentencePieceBpe(std::move(pieces));
}

}  // namespace penstock
