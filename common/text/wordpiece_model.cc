// WordPiece (greedy longest match, a word that does not come out even is unknown) and WordLevel
// (a word is in the vocabulary or unknown).

#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "common/text/token_model.h"
#include "common/text/utf8.h"

namespace penstock {
namespace {

class WordPieceModel : public TokenModel {
 public:
  WordPieceModel(const TokenizerModel& spec, ModelContext context)
      : vocabulary_(*context.vocabulary),
        blocked_(std::move(context.blocked)),
        word_level_(spec.kind == TokenizerModel::Kind::kWordLevel),
        unk_token_(spec.unk_token.value_or("")),
        unk_(vocabulary_.Find(unk_token_)),
        prefix_(spec.continuing_subword_prefix),
        max_chars_(spec.max_input_chars_per_word) {}

  absl::Status Encode(std::string_view piece, bool plain, ModelScratch* scratch,
                      std::vector<int32_t>* out) const override {
    WordCache& cache = scratch->CacheFor(plain);
    if (cache.Lookup(piece, out)) return absl::OkStatus();
    const size_t before = out->size();
    if (word_level_) {
      const std::optional<int32_t> id = Find(piece, plain);
      if (!id.has_value()) return Unknown(out);
      out->push_back(*id);
    } else if (!Split(piece, plain, scratch, out)) {
      out->resize(before);
      return Unknown(out);
    }
    cache.Store(piece, out->data() + before, out->size() - before);
    return absl::OkStatus();
  }

 private:
  std::optional<int32_t> Find(std::string_view text, bool plain) const {
    const std::optional<int32_t> id = vocabulary_.Find(text);
    if (plain && id.has_value() && static_cast<size_t>(*id) < blocked_.size() && blocked_[*id] &&
        (text.empty() || Utf8Length(text[0]) < text.size())) {
      return std::nullopt;
    }
    return id;
  }

  bool Split(std::string_view word, bool plain, ModelScratch* scratch,
             std::vector<int32_t>* out) const {
    const auto chars = std::count_if(
        word.begin(), word.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
    if (chars > max_chars_) return false;
    std::string& text = scratch->text;
    for (size_t begin = 0; begin < word.size();) {
      // Nothing longer than the longest piece can be one.
      size_t end = std::min(word.size(), begin + vocabulary_.longest_piece());
      while (end < word.size() && (static_cast<uint8_t>(word[end]) & 0xC0) == 0x80) --end;
      std::optional<int32_t> id;
      while (end > begin) {
        text.assign(begin > 0 ? std::string_view(prefix_) : std::string_view());
        text += word.substr(begin, end - begin);
        id = Find(text, plain);
        if (id.has_value()) break;
        PreviousChar(word, &end);
      }
      if (!id.has_value()) return false;
      out->push_back(*id);
      begin = end;
    }
    return true;
  }

  absl::Status Unknown(std::vector<int32_t>* out) const {
    if (!unk_.has_value()) {
      return InvalidArgument("the unknown token '%s' is not in the vocabulary", unk_token_);
    }
    out->push_back(*unk_);
    return absl::OkStatus();
  }

  const Vocabulary& vocabulary_;
  std::vector<bool> blocked_;
  bool word_level_;
  std::string unk_token_;
  std::optional<int32_t> unk_;
  std::string prefix_;
  int64_t max_chars_;
};

}  // namespace

ModelOr NewWordPieceModel(TokenizerModel spec, ModelContext context) {
  return std::make_unique<WordPieceModel>(spec, std::move(context));
}

absl::StatusOr<std::unique_ptr<const TokenModel>> NewTokenModel(TokenizerModel spec,
                                                                ModelContext context) {
  switch (spec.kind) {
    case TokenizerModel::Kind::kBpe:
    case TokenizerModel::Kind::kTiktoken:
      return NewBpeModel(std::move(spec), std::move(context));
    case TokenizerModel::Kind::kUnigram:
      return NewUnigramModel(std::move(spec), std::move(context));
    case TokenizerModel::Kind::kWordPiece:
    case TokenizerModel::Kind::kWordLevel:
      return NewWordPieceModel(std::move(spec), std::move(context));
    case TokenizerModel::Kind::kSentencePieceBpe:
    case TokenizerModel::Kind::kSentencePieceUnigram:
      return NewSentencePieceModel(std::move(spec), std::move(context));
  }
  return InvalidArgument("unknown kind of tokenizer model %d", static_cast<int>(spec.kind));
}

}  // namespace penstock
