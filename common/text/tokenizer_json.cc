#include "common/text/tokenizer_json.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "common/base/status.h"
#include "common/text/base64.h"
#include "common/text/tokenizer_json_fields.h"

namespace penstock {
namespace {

// The members of a Sequence, or the value alone, in order; nested sequences opened.
absl::Status Flatten(const Json& value, const std::string& where, std::string_view list_key,
                     int depth, std::vector<std::pair<const Json*, std::string>>* out) {
  constexpr int kMaxDepth = 16;
  if (value.is_null()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Fields fields, Fields::Of(value, where));
  ASSIGN_OR_RETURN(const std::string type, fields.NeedString("type"));
  if (type != "Sequence") {
    out->emplace_back(&value, where);
    return absl::OkStatus();
  }
  if (depth > kMaxDepth) return InvalidArgument("%s: nested too deeply", where);
  ASSIGN_OR_RETURN(const Json::Array* members, fields.NeedArray(list_key));
  for (size_t i = 0; i < members->size(); ++i) {
    RETURN_IF_ERROR(
        Flatten((*members)[i], absl::StrFormat("%s[%d]", where, i), list_key, depth + 1, out));
  }
  return absl::OkStatus();
}

absl::StatusOr<SplitBehavior> Behavior(const Fields& fields, std::string_view fallback) {
  std::string name(fallback);
  RETURN_IF_ERROR(fields.Read("behavior", &name));
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return InvalidArgument("%s.behavior: unknown behavior '%s'", fields.where(), name);
}

absl::StatusOr<NormalizerStep> OneNormalizer(const Fields& fields, const std::string& type) {
  using Kind = NormalizerStep::Kind;
  static const std::unordered_map<std::string, Kind> kinds = {
      {"NFC", Kind::kNfc},
      {"NFD", Kind::kNfd},
      {"NFKC", Kind::kNfkc},
      {"NFKD", Kind::kNfkd},
      {"Lowercase", Kind::kLowercase},
      {"Strip", Kind::kStrip},
      {"StripAccents", Kind::kStripAccents},
      {"Prepend", Kind::kPrepend},
      {"Replace", Kind::kReplace},
      {"Precompiled", Kind::kPrecompiled},
      {"BertNormalizer", Kind::kBert},
      {"Nmt", Kind::kNmt},
      {"ByteLevel", Kind::kByteLevel},
  };
  const auto it = kinds.find(type);
  if (it == kinds.end()) return fields.UnknownType(type);
  NormalizerStep step;
  step.kind = it->second;
  switch (step.kind) {
    case Kind::kStrip:
      RETURN_IF_ERROR(fields.Read("strip_left", &step.strip_left));
      RETURN_IF_ERROR(fields.Read("strip_right", &step.strip_right));
      break;
    case Kind::kPrepend: {
      ASSIGN_OR_RETURN(step.content, fields.NeedString("prepend"));
      break;
    }
    case Kind::kReplace: {
      RETURN_IF_ERROR(fields.Read("pattern", &step.pattern));
      ASSIGN_OR_RETURN(step.content, fields.NeedString("content"));
      break;
    }
    case Kind::kPrecompiled: {
      std::string encoded;
      RETURN_IF_ERROR(fields.Read("precompiled_charsmap", &encoded));
      const std::optional<std::string> blob = DecodeBase64(encoded);
      if (!blob.has_value()) {
        return InvalidArgument("%s.precompiled_charsmap: not base64", fields.where());
      }
      step.charsmap = *blob;
      break;
    }
    case Kind::kBert:
      RETURN_IF_ERROR(fields.Read("clean_text", &step.clean_text));
      RETURN_IF_ERROR(fields.Read("handle_chinese_chars", &step.handle_chinese_chars));
      RETURN_IF_ERROR(fields.Read("strip_accents", &step.strip_accents));
      RETURN_IF_ERROR(fields.Read("lowercase", &step.lowercase));
      break;
    default:
      break;
  }
  return step;
}

// The scheme of a Metaspace step, old or new form.
absl::StatusOr<PreTokenizerStep::Prepend> PrependScheme(const Fields& fields) {
  using Prepend = PreTokenizerStep::Prepend;
  std::string scheme = "always";
  RETURN_IF_ERROR(fields.Read("prepend_scheme", &scheme));
  bool add_prefix_space = true;
  RETURN_IF_ERROR(fields.Read("add_prefix_space", &add_prefix_space));
  if (!add_prefix_space) return Prepend::kNever;
  if (scheme == "always") return Prepend::kAlways;
  if (scheme == "first") return Prepend::kFirst;
  if (scheme == "never") return Prepend::kNever;
  return InvalidArgument("%s.prepend_scheme: unknown scheme '%s'", fields.where(), scheme);
}

absl::StatusOr<PreTokenizerStep> OnePreTokenizer(const Fields& fields, const std::string& type) {
  using Kind = PreTokenizerStep::Kind;
  static const std::unordered_map<std::string, Kind> kinds = {
      {"Split", Kind::kSplit},
      {"ByteLevel", Kind::kByteLevel},
      {"Metaspace", Kind::kMetaspace},
      {"Digits", Kind::kDigits},
      {"Punctuation", Kind::kPunctuation},
      {"BertPreTokenizer", Kind::kBert},
      {"Whitespace", Kind::kWhitespace},
      {"WhitespaceSplit", Kind::kWhitespaceSplit},
      {"CharDelimiterSplit", Kind::kCharDelimiterSplit},
      {"Delimiter", Kind::kCharDelimiterSplit},
      {"UnicodeScripts", Kind::kUnicodeScripts},
      {"FixedLength", Kind::kFixedLength},
  };
  const auto it = kinds.find(type);
  if (it == kinds.end()) return fields.UnknownType(type);
  PreTokenizerStep step;
  step.kind = it->second;
  switch (step.kind) {
    case Kind::kSplit: {
      RETURN_IF_ERROR(fields.Read("pattern", &step.pattern));
      RETURN_IF_ERROR(fields.Need("behavior").status());
      ASSIGN_OR_RETURN(step.behavior, Behavior(fields, ""));
      RETURN_IF_ERROR(fields.Read("invert", &step.invert));
      break;
    }
    case Kind::kByteLevel:
      RETURN_IF_ERROR(fields.Read("add_prefix_space", &step.add_prefix_space));
      RETURN_IF_ERROR(fields.Read("use_regex", &step.use_regex));
      break;
    case Kind::kMetaspace: {
      RETURN_IF_ERROR(fields.ReadChar("replacement", &step.replacement));
      ASSIGN_OR_RETURN(step.prepend_scheme, PrependScheme(fields));
      RETURN_IF_ERROR(fields.Read("split", &step.split));
      break;
    }
    case Kind::kDigits:
      RETURN_IF_ERROR(fields.Read("individual_digits", &step.individual_digits));
      break;
    case Kind::kPunctuation: {
      ASSIGN_OR_RETURN(step.behavior, Behavior(fields, "Isolated"));
      break;
    }
    case Kind::kCharDelimiterSplit:
      RETURN_IF_ERROR(fields.ReadChar("delimiter", &step.delimiter));
      break;
    case Kind::kFixedLength:
      RETURN_IF_ERROR(fields.Read("length", &step.length));
      break;
    default:
      break;
  }
  return step;
}

absl::StatusOr<DecoderStep> OneDecoder(const Fields& fields, const std::string& type) {
  using Kind = DecoderStep::Kind;
  static const std::unordered_map<std::string, Kind> kinds = {
      {"ByteLevel", Kind::kByteLevel},
      {"ByteFallback", Kind::kByteFallback},
      {"Fuse", Kind::kFuse},
      {"Strip", Kind::kStrip},
      {"Replace", Kind::kReplace},
      {"Metaspace", Kind::kMetaspace},
      {"WordPiece", Kind::kWordPiece},
      {"BPEDecoder", Kind::kBpe},
      {"CTC", Kind::kCtc},
  };
  const auto it = kinds.find(type);
  if (it == kinds.end()) return fields.UnknownType(type);
  DecoderStep step;
  step.kind = it->second;
  switch (step.kind) {
    case Kind::kStrip:
      RETURN_IF_ERROR(fields.ReadChar("content", &step.content));
      RETURN_IF_ERROR(fields.Read("start", &step.start));
      RETURN_IF_ERROR(fields.Read("stop", &step.stop));
      break;
    case Kind::kReplace: {
      RETURN_IF_ERROR(fields.Read("pattern", &step.pattern));
      ASSIGN_OR_RETURN(step.content, fields.NeedString("content"));
      break;
    }
    case Kind::kMetaspace: {
      RETURN_IF_ERROR(fields.ReadChar("replacement", &step.content));
      ASSIGN_OR_RETURN(const PreTokenizerStep::Prepend scheme, PrependScheme(fields));
      step.drop_first = scheme != PreTokenizerStep::Prepend::kNever;
      break;
    }
    case Kind::kWordPiece:
      RETURN_IF_ERROR(fields.Read("prefix", &step.prefix));
      RETURN_IF_ERROR(fields.Read("cleanup", &step.cleanup));
      break;
    case Kind::kBpe:
      RETURN_IF_ERROR(fields.Read("suffix", &step.suffix));
      break;
    case Kind::kCtc:
      RETURN_IF_ERROR(fields.Read("pad_token", &step.pad_token));
      RETURN_IF_ERROR(fields.Read("word_delimiter_token", &step.word_delimiter_token));
      RETURN_IF_ERROR(fields.Read("cleanup", &step.cleanup));
      break;
    default:
      break;
  }
  return step;
}

// ["[SEP]", 102]
absl::StatusOr<TemplateItem> NamedToken(const Fields& fields, std::string_view key) {
  ASSIGN_OR_RETURN(const Json::Array* pair, fields.NeedArray(key));
  if (pair->size() != 2) {
    return InvalidArgument("%s.%s: must be [token, id]", fields.where(), key);
  }
  ASSIGN_OR_RETURN(const int32_t id, fields.Id((*pair)[1], key));
  return TemplateItem{false, {id}};
}

absl::StatusOr<std::vector<TemplateItem>> Template(const Fields& fields) {
  const Json* known = fields.Find("special_tokens");
  ASSIGN_OR_RETURN(const Json::Array* items, fields.NeedArray("single"));
  std::vector<TemplateItem> result;
  for (size_t i = 0; i < items->size(); ++i) {
    const std::string where = absl::StrFormat("%s.single[%d]", fields.where(), i);
    if (const Json* sequence = (*items)[i].Find("Sequence"); sequence != nullptr) {
      const Json* name = sequence->Find("id");
      if (name == nullptr || !name->is_string() || name->as_string() != "A") {
        return InvalidArgument("%s: only sequence A exists for a single text", where);
      }
      result.push_back({true, {}});
      continue;
    }
    const Json* special = (*items)[i].Find("SpecialToken");
    const Json* name = special == nullptr ? nullptr : special->Find("id");
    const Json* entry = name == nullptr || !name->is_string() || known == nullptr
                            ? nullptr
                            : known->Find(name->as_string());
    if (entry == nullptr) {
      return InvalidArgument("%s: must be a Sequence or a SpecialToken of special_tokens", where);
    }
    ASSIGN_OR_RETURN(const Fields token, Fields::Of(*entry, where));
    ASSIGN_OR_RETURN(const Json::Array* ids, token.NeedArray("ids"));
    TemplateItem item;
    for (const Json& id : *ids) {
      ASSIGN_OR_RETURN(item.ids.emplace_back(), token.Id(id, "ids"));
    }
    result.push_back(std::move(item));
  }
  return result;
}

absl::StatusOr<std::vector<TemplateItem>> OnePostProcessor(const Fields& fields,
                                                           const std::string& type) {
  if (type == "TemplateProcessing") return Template(fields);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    ASSIGN_OR_RETURN(TemplateItem cls, NamedToken(fields, "cls"));
    ASSIGN_OR_RETURN(TemplateItem sep, NamedToken(fields, "sep"));
    return std::vector<TemplateItem>{std::move(cls), {true, {}}, std::move(sep)};
  }
  if (type == "ByteLevel") return std::vector<TemplateItem>{{true, {}}};  // offsets only
  return fields.UnknownType(type);
}

template <typename Step, typename One>
absl::StatusOr<std::vector<Step>> ParseSteps(const Json& value, const std::string& where,
                                             std::string_view list_key, One one) {
  constexpr size_t kMaxSteps = 256;
  std::vector<std::pair<const Json*, std::string>> parts;
  RETURN_IF_ERROR(Flatten(value, where, list_key, 0, &parts));
  if (parts.size() > kMaxSteps) {
    return InvalidArgument("%s: %d steps, at most %d", where, parts.size(), kMaxSteps);
  }
  std::vector<Step> steps;
  for (const auto& [part, place] : parts) {
    ASSIGN_OR_RETURN(const Fields fields, Fields::Of(*part, place));
    ASSIGN_OR_RETURN(const std::string type, fields.NeedString("type"));
    ASSIGN_OR_RETURN(steps.emplace_back(), one(fields, type));
  }
  return steps;
}

// Ids as the reference gives them: the file's own id counts for nothing; a token that the model
// has keeps the model's id, the others are numbered behind the vocabulary.
class IdAssigner {
 public:
  explicit IdAssigner(const std::vector<VocabEntry>& vocab) {
    model_.reserve(vocab.size());
    for (const VocabEntry& entry : vocab) model_[entry.piece] = entry.id;
  }
  int32_t For(const std::string& content) {
    const auto given = added_.find(content);
    if (given != added_.end()) return given->second;
    const int32_t size = static_cast<int32_t>(model_.size());
    const auto known = model_.find(content);
    const int32_t id = known != model_.end()           ? known->second
                       : highest_ < 0                  ? size
                       : highest_ >= size || size == 0 ? highest_ + 1
                                                       : size;
    highest_ = std::max(highest_, id);
    added_.emplace(content, id);
    return id;
  }

 private:
  std::unordered_map<std::string_view, int32_t> model_;
  std::unordered_map<std::string, int32_t> added_;
  int32_t highest_ = -1;  // of the added ones
};

absl::StatusOr<std::vector<AddedToken>> AddedTokens(const Json& value,
                                                    const std::vector<VocabEntry>& vocab) {
  std::vector<AddedToken> tokens;
  if (value.is_null()) return tokens;
  if (!value.is_array()) {
    return InvalidArgument("added_tokens: must be an array, is %s", value.type_name());
  }
  IdAssigner assigner(vocab);
  std::unordered_map<std::string, size_t> seen;
  for (size_t i = 0; i < value.as_array().size(); ++i) {
    ASSIGN_OR_RETURN(const Fields fields,
                     Fields::Of(value.as_array()[i], absl::StrFormat("added_tokens[%d]", i)));
    AddedToken token;
    token.normalized = true;
    ASSIGN_OR_RETURN(token.content, fields.NeedString("content"));
    RETURN_IF_ERROR(fields.Read("single_word", &token.single_word));
    RETURN_IF_ERROR(fields.Read("lstrip", &token.lstrip));
    RETURN_IF_ERROR(fields.Read("rstrip", &token.rstrip));
    RETURN_IF_ERROR(fields.Read("normalized", &token.normalized));
    RETURN_IF_ERROR(fields.Read("special", &token.special));
    if (token.content.empty()) continue;
    token.id = assigner.For(token.content);
    const auto [it, fresh] = seen.emplace(token.content, tokens.size());
    if (fresh) {
      tokens.push_back(std::move(token));
    } else {
      token.special = token.special || tokens[it->second].special;
      tokens[it->second] = std::move(token);
    }
  }
  return tokens;
}

}  // namespace

absl::StatusOr<std::vector<NormalizerStep>> ParseNormalizer(const Json& value) {
  return ParseSteps<NormalizerStep>(value, "normalizer", "normalizers", OneNormalizer);
}
absl::StatusOr<std::vector<PreTokenizerStep>> ParsePreTokenizer(const Json& value) {
  return ParseSteps<PreTokenizerStep>(value, "pre_tokenizer", "pretokenizers", OnePreTokenizer);
}
absl::StatusOr<std::vector<DecoderStep>> ParseDecoder(const Json& value) {
  return ParseSteps<DecoderStep>(value, "decoder", "decoders", OneDecoder);
}
absl::StatusOr<std::vector<std::vector<TemplateItem>>> ParsePostProcessor(const Json& value) {
  return ParseSteps<std::vector<TemplateItem>>(value, "post_processor", "processors",
                                               OnePostProcessor);
}

namespace {

absl::StatusOr<TokenizerSpec> SpecOf(std::string_view text) {
  ASSIGN_OR_RETURN(Json root, Json::Parse(text));
  if (!root.is_object()) return InvalidArgument("must be an object, is %s", root.type_name());
  static const Json null;
  const auto section = [&root](std::string_view key) -> const Json& {
    const Json* value = root.Find(key);
    return value == nullptr ? null : *value;
  };
  TokenizerSpec spec;
  ASSIGN_OR_RETURN(spec.normalizer, ParseNormalizer(section("normalizer")));
  ASSIGN_OR_RETURN(spec.pre_tokenizer, ParsePreTokenizer(section("pre_tokenizer")));
  ASSIGN_OR_RETURN(spec.post_processor, ParsePostProcessor(section("post_processor")));
  ASSIGN_OR_RETURN(spec.decoder, ParseDecoder(section("decoder")));
  for (JsonMember& member : root.as_object()) {
    if (member.key != "model") continue;
    ASSIGN_OR_RETURN(spec.model, ParseTokenizerModel(std::move(member.value)));
    member.value = Json(true);
  }
  if (section("model").is_null()) return InvalidArgument("'model' is missing");
  ASSIGN_OR_RETURN(spec.added_tokens, AddedTokens(section("added_tokens"), spec.model.vocab));
  return spec;
}

}  // namespace

absl::StatusOr<TokenizerSpec> SpecFromTokenizerJson(std::string_view text,
                                                    const std::string& name) {
  absl::StatusOr<TokenizerSpec> spec = SpecOf(text);
  if (spec.ok()) return spec;
  return absl::Status(spec.status().code(),
                      absl::StrFormat("%s: %s", name, std::string(spec.status().message())));
}

}  // namespace penstock
