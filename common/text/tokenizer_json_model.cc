// The "model" section of tokenizer.json: nearly all of its bytes.

#include <utility>

#include "common/base/status.h"
#include "common/text/tokenizer_json.h"
#include "common/text/tokenizer_json_fields.h"

namespace penstock {
namespace {

Json* Member(Json* value, std::string_view key) {
  return const_cast<Json*>(std::as_const(*value).Find(key));
}

absl::StatusOr<std::vector<VocabEntry>> VocabObject(Json* value) {
  if (value == nullptr || !value->is_object()) {
    return InvalidArgument("model.vocab: must be an object");
  }
  std::vector<VocabEntry> vocab;
  vocab.reserve(value->as_object().size());
  for (JsonMember& member : value->as_object()) {
    const std::optional<int64_t> id = member.value.ToInt64();
    if (!id.has_value() || *id < 0 || *id > INT32_MAX) {
      return InvalidArgument("model.vocab['%s']: must be an id (0 to 2^31 - 1), is %s", member.key,
                             member.value.type_name());
    }
    vocab.push_back({std::move(member.key), static_cast<int32_t>(*id), 0});
  }
  return vocab;
}

absl::StatusOr<std::vector<VocabEntry>> VocabPairs(Json* value) {
  if (value == nullptr || !value->is_array()) {
    return InvalidArgument("model.vocab: must be an array of [piece, score]");
  }
  std::vector<VocabEntry> vocab;
  vocab.reserve(value->as_array().size());
  for (Json& entry : value->as_array()) {
    const auto id = static_cast<int32_t>(vocab.size());
    if (!entry.is_array() || entry.as_array().size() != 2 || !entry.as_array()[0].is_string()) {
      return InvalidArgument("model.vocab[%d]: must be [piece, score]", id);
    }
    const std::optional<double> score = entry.as_array()[1].ToDouble();
    if (!score.has_value()) return InvalidArgument("model.vocab[%d]: score is no number", id);
    // The text is taken out of the tree: it is the bulk of the file.
    vocab.push_back(
        {std::move(const_cast<std::string&>(entry.as_array()[0].as_string())), id, *score});
  }
  return vocab;
}

absl::Status Merges(Json* value, TokenizerModel* model) {
  if (value == nullptr || !value->is_array()) {
    return InvalidArgument("model.merges: must be an array");
  }
  model->merges.reserve(value->as_array().size());
  for (size_t i = 0; i < value->as_array().size(); ++i) {
    Json& merge = value->as_array()[i];
    if (merge.is_string()) {
      const std::string& text = merge.as_string();
      if (text.starts_with("#version")) continue;
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
        return InvalidArgument("model.merges[%d]: must be two pieces with one space", i);
      }
      model->merges.emplace_back(text.substr(0, space), text.substr(space + 1));
      continue;
    }
    const bool pair = merge.is_array() && merge.as_array().size() == 2 &&
                      merge.as_array()[0].is_string() && merge.as_array()[1].is_string();
    if (!pair) return InvalidArgument("model.merges[%d]: must be \"a b\" or [\"a\", \"b\"]", i);
    model->merges.emplace_back(
        std::move(const_cast<std::string&>(merge.as_array()[0].as_string())),
        std::move(const_cast<std::string&>(merge.as_array()[1].as_string())));
  }
  return absl::OkStatus();
}

// Old files do not name the kind; it shows in the other fields.
std::string GuessedType(const Fields& fields) {
  if (fields.Find("merges") != nullptr) return "BPE";
  const Json* vocab = fields.Find("vocab");
  if (vocab != nullptr && vocab->is_array()) return "Unigram";
  return fields.Find("max_input_chars_per_word") != nullptr ? "WordPiece" : "WordLevel";
}

}  // namespace

absl::StatusOr<TokenizerModel> ParseTokenizerModel(Json value) {
  ASSIGN_OR_RETURN(const Fields fields, Fields::Of(value, "model"));
  std::string type = GuessedType(fields);
  RETURN_IF_ERROR(fields.Read("type", &type));
  TokenizerModel model;
  RETURN_IF_ERROR(fields.Read("byte_fallback", &model.byte_fallback));
  if (type == "Unigram") {
    model.kind = TokenizerModel::Kind::kUnigram;
    std::optional<int64_t> unk;
    RETURN_IF_ERROR(fields.Read("unk_id", &unk));
    if (unk.has_value()) {
      ASSIGN_OR_RETURN(model.unk_id, fields.NeedId("unk_id"));
    }
    ASSIGN_OR_RETURN(model.vocab, VocabPairs(Member(&value, "vocab")));
    return model;
  }
  RETURN_IF_ERROR(fields.Read("unk_token", &model.unk_token));
  RETURN_IF_ERROR(fields.Read("continuing_subword_prefix", &model.continuing_subword_prefix));
  if (type == "BPE") {
    model.kind = TokenizerModel::Kind::kBpe;
    RETURN_IF_ERROR(fields.Read("end_of_word_suffix", &model.end_of_word_suffix));
    RETURN_IF_ERROR(fields.Read("fuse_unk", &model.fuse_unk));
    RETURN_IF_ERROR(fields.Read("ignore_merges", &model.ignore_merges));
    RETURN_IF_ERROR(Merges(Member(&value, "merges"), &model));
  } else if (type == "WordPiece") {
    model.kind = TokenizerModel::Kind::kWordPiece;
    if (!model.unk_token.has_value()) model.unk_token = "[UNK]";
    if (fields.Find("continuing_subword_prefix") == nullptr) model.continuing_subword_prefix = "##";
    RETURN_IF_ERROR(fields.Read("max_input_chars_per_word", &model.max_input_chars_per_word));
  } else if (type == "WordLevel") {
    model.kind = TokenizerModel::Kind::kWordLevel;
    if (!model.unk_token.has_value()) model.unk_token = "<unk>";
  } else {
    return fields.UnknownType(type);
  }
  ASSIGN_OR_RETURN(model.vocab, VocabObject(Member(&value, "vocab")));
  return model;
}

}  // namespace penstock
