#include "common/text/gguf_vocab.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string_view>

#include "common/base/status.h"
#include "common/text/gguf_pre_tokenizers.h"

namespace penstock {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581

// The array shared by all kinds, checked: one string (and score, and type) per id.
struct Vocab {
  const std::vector<std::string_view>* tokens = nullptr;
  std::vector<PieceType> types;
  const GgufArray* scores = nullptr;  // or null
};

absl::StatusOr<const GgufArray*> ArrayOfSize(const GgufFile& file, std::string_view key,
                                             size_t size) {
  ASSIGN_OR_RETURN(const GgufArray* array, file.Array(key));
  if (array != nullptr && array->count != size) {
    return InvalidArgument("%s: key '%s' has %d values for %d tokens", file.name(), key,
                           array->count, size);
  }
  return array;
}

absl::StatusOr<Vocab> ReadVocab(const GgufFile& file) {
  ASSIGN_OR_RETURN(const GgufArray* tokens, file.Array("tokenizer.ggml.tokens"));
  if (tokens == nullptr || tokens->type != GgufType::kString || tokens->count == 0) {
    return InvalidArgument("%s: no array of strings 'tokenizer.ggml.tokens': it has no vocabulary",
                           file.name());
  }
  if (tokens->count > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument("%s: 'tokenizer.ggml.tokens' has %d tokens", file.name(), tokens->count);
  }
  Vocab vocab;
  vocab.tokens = &tokens->strings;
  ASSIGN_OR_RETURN(vocab.scores, ArrayOfSize(file, "tokenizer.ggml.scores", tokens->count));
  ASSIGN_OR_RETURN(const GgufArray* types,
                   ArrayOfSize(file, "tokenizer.ggml.token_type", tokens->count));
  vocab.types.assign(tokens->count, PieceType::kNormal);
  if (types == nullptr) return vocab;
  constexpr PieceType kTypes[] = {PieceType::kNormal,  PieceType::kNormal,      PieceType::kUnknown,
                                  PieceType::kControl, PieceType::kUserDefined, PieceType::kUnused,
                                  PieceType::kByte};
  for (size_t i = 0; i < tokens->count; ++i) {
    const std::optional<int64_t> type = types->IntAt(i);
    if (!type.has_value() || *type < 0 || *type >= static_cast<int64_t>(std::size(kTypes))) {
      return InvalidArgument("%s: 'tokenizer.ggml.token_type' of token %d is not 0 to 6",
                             file.name(), i);
    }
    vocab.types[i] = kTypes[*type];
  }
  return vocab;
}

// An id that the file names; nullopt when it names none.
absl::StatusOr<std::optional<int32_t>> IdOf(const GgufFile& file, const std::string& name,
                                            size_t num_tokens) {
  const std::string key = "tokenizer.ggml." + name;
  ASSIGN_OR_RETURN(const std::optional<int64_t> id, file.Int(key));
  // Some converters write -1 or 2^32 - 1 for "none".
  if (!id.has_value() || *id == -1 || *id == 0xFFFFFFFF) return std::optional<int32_t>();
  if (*id < 0 || *id >= static_cast<int64_t>(num_tokens)) {
    return InvalidArgument("%s: '%s' is %d, the vocabulary has %d tokens", file.name(), key, *id,
                           num_tokens);
  }
  return std::optional<int32_t>(static_cast<int32_t>(*id));
}

absl::Status ReadSpecials(const GgufFile& file, const Vocab& vocab, TokenizerSpec* spec) {
  struct Named {
    const char* key;
    const char* name;
  };
  constexpr Named kNamed[] = {
      {"bos_token_id", "bos_token"},       {"eos_token_id", "eos_token"},
      {"unknown_token_id", "unk_token"},   {"seperator_token_id", "sep_token"},
      {"separator_token_id", "sep_token"}, {"padding_token_id", "pad_token"},
      {"cls_token_id", "cls_token"},       {"mask_token_id", "mask_token"},
  };
  for (const Named& named : kNamed) {
    ASSIGN_OR_RETURN(const std::optional<int32_t> id, IdOf(file, named.key, vocab.tokens->size()));
    if (!id.has_value()) continue;
    spec->special_tokens.emplace_back(named.name, (*vocab.tokens)[*id]);
    if (named.name == std::string_view("bos_token")) spec->bos_id = id;
    if (named.name == std::string_view("eos_token")) spec->eos_id = id;
    if (named.name == std::string_view("unk_token")) spec->model.unk_id = id;
  }
  return absl::OkStatus();
}

absl::Status ReadAddFlags(const GgufFile& file, TokenizerSpec* spec) {
  ASSIGN_OR_RETURN(const std::optional<bool> bos, file.Bool("tokenizer.ggml.add_bos_token"));
  ASSIGN_OR_RETURN(const std::optional<bool> eos, file.Bool("tokenizer.ggml.add_eos_token"));
  spec->add_bos = bos.value_or(spec->add_bos) && spec->bos_id.has_value();
  spec->add_eos = eos.value_or(spec->add_eos) && spec->eos_id.has_value();
  return absl::OkStatus();
}

void AddToken(const Vocab& vocab, size_t id, TokenizerSpec* spec) {
  if ((*vocab.tokens)[id].empty()) return;
  AddedToken token;
  token.id = static_cast<int32_t>(id);
  token.content = std::string((*vocab.tokens)[id]);
  token.special = vocab.types[id] != PieceType::kUserDefined;
  spec->added_tokens.push_back(std::move(token));
}

// "a b": the first space that is not the first character parts the two pieces.
absl::Status ReadMerges(const GgufFile& file, TokenizerSpec* spec) {
  ASSIGN_OR_RETURN(const GgufArray* merges, file.Array("tokenizer.ggml.merges"));
  if (merges == nullptr || merges->type != GgufType::kString) {
    return InvalidArgument("%s: no array of strings 'tokenizer.ggml.merges'", file.name());
  }
  spec->model.merges.reserve(merges->count);
  for (const std::string_view merge : merges->strings) {
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size()) {
      return InvalidArgument("%s: merge '%s' is not two pieces", file.name(), merge);
    }
    spec->model.merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  return absl::OkStatus();
}

absl::Status FillByteLevelBpe(const GgufFile& file, const Vocab& vocab, TokenizerSpec* spec) {
  ASSIGN_OR_RETURN(const auto pre_name, file.String("tokenizer.ggml.pre"));
  if (!pre_name.has_value()) {
    return Unimplemented(
        "%s does not name its pre-tokenizer ('tokenizer.ggml.pre' is missing): convert the model "
        "again with a current converter",
        file.name());
  }
  std::optional<GgufPreTokenizer> pre = FindGgufPreTokenizer(*pre_name);
  if (!pre.has_value()) {
    return Unimplemented("%s: pre-tokenizer '%s' is not supported (known: %s)", file.name(),
                         *pre_name, KnownGgufPreTokenizers());
  }
  spec->normalizer = std::move(pre->normalizer);
  spec->pre_tokenizer = std::move(pre->steps);
  spec->model.kind = TokenizerModel::Kind::kBpe;
  spec->model.ignore_merges = pre->ignore_merges;
  spec->add_bos = pre->add_bos;
  spec->decoder.push_back({.kind = DecoderStep::Kind::kByteLevel});
  // No unk token: a byte that the vocabulary lacks is dropped. Mapping it to the named unknown
  // token would inject a control token (SmolLM2's is <|endoftext|>).
  spec->model.unk_id = std::nullopt;
  std::set<std::string_view> seen;
  for (size_t i = 0; i < vocab.tokens->size(); ++i) {
    const std::string_view token = (*vocab.tokens)[i];
    if (vocab.types[i] == PieceType::kControl || vocab.types[i] == PieceType::kUserDefined ||
        vocab.types[i] == PieceType::kUnknown) {
      AddToken(vocab, i, spec);
    }
    // Padding repeats pieces in some files; the first one is the real one.
    if (!token.empty() && seen.insert(token).second) {
      spec->model.vocab.push_back({.piece = std::string(token), .id = static_cast<int32_t>(i)});
    }
  }
  return ReadMerges(file, spec);
}

absl::StatusOr<std::string> Charsmap(const GgufFile& file) {
  ASSIGN_OR_RETURN(const GgufArray* map, file.Array("tokenizer.ggml.precompiled_charsmap"));
  if (map == nullptr) return std::string();
  if (map->type != GgufType::kUint8 && map->type != GgufType::kInt8) {
    return InvalidArgument("%s: 'tokenizer.ggml.precompiled_charsmap' is not an array of bytes",
                           file.name());
  }
  return std::string(reinterpret_cast<const char*>(map->raw.data()), map->raw.size());
}

// White space pieces that a file defines for the model, not markers that someone writes.
bool IsWhitespacePiece(std::string_view piece) {
  while (!piece.empty()) {
    if (piece.starts_with(kSpace)) {
      piece.remove_prefix(kSpace.size());
    } else if (piece[0] == ' ' || piece[0] == '\n' || piece[0] == '\t' || piece[0] == '\r') {
      piece.remove_prefix(1);
    } else {
      return false;
    }
  }
  return true;
}

std::string EscapeSpaces(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == ' ') {
      out += kSpace;
    } else {
      out += c;
    }
  }
  return out;
}

absl::Status FillSentencePiece(const GgufFile& file, const Vocab& vocab, bool unigram,
                               TokenizerSpec* spec) {
  if (vocab.scores == nullptr) {
    return InvalidArgument("%s: no array 'tokenizer.ggml.scores'", file.name());
  }
  NormalizerStep normalizer{.kind = NormalizerStep::Kind::kSentencePiece};
  ASSIGN_OR_RETURN(normalizer.charsmap, Charsmap(file));
  ASSIGN_OR_RETURN(const auto prefix, file.Bool("tokenizer.ggml.add_space_prefix"));
  ASSIGN_OR_RETURN(const auto squeeze, file.Bool("tokenizer.ggml.remove_extra_whitespaces"));
  normalizer.add_dummy_prefix = prefix.value_or(true);
  normalizer.remove_extra_whitespaces = squeeze.value_or(unigram);
  spec->model.kind = unigram ? TokenizerModel::Kind::kSentencePieceUnigram
                             : TokenizerModel::Kind::kSentencePieceBpe;
  spec->add_bos = !unigram;
  spec->add_eos = unigram;
  for (size_t i = 0; i < vocab.tokens->size(); ++i) {
    const std::string_view token = (*vocab.tokens)[i];
    PieceType type = vocab.types[i];
    const std::optional<double> score = vocab.scores->FloatAt(i);
    if (!score.has_value()) {
      return InvalidArgument("%s: 'tokenizer.ggml.scores' is not an array of numbers", file.name());
    }
    if (type == PieceType::kControl) AddToken(vocab, i, spec);
    if (type == PieceType::kUnknown && !spec->model.unk_id.has_value()) {
      spec->model.unk_id = static_cast<int32_t>(i);
    }
    std::string piece(token);
    if (type == PieceType::kUserDefined) {
      if (IsWhitespacePiece(token)) {
        piece = EscapeSpaces(token);
        normalizer.user_symbols.push_back(piece);
      } else {
        AddToken(vocab, i, spec);
        type = PieceType::kUnused;
      }
    }
    if (type == PieceType::kByte) spec->model.byte_fallback = true;
    spec->model.vocab.push_back(
        {.piece = std::move(piece), .id = static_cast<int32_t>(i), .score = *score});
    spec->model.piece_types.push_back(type);
  }
  DecoderStep decoder{.kind = DecoderStep::Kind::kSentencePiece};
  decoder.drop_first = normalizer.add_dummy_prefix;
  decoder.drop_all_first = normalizer.remove_extra_whitespaces;
  spec->decoder.push_back(std::move(decoder));
  spec->normalizer.push_back(std::move(normalizer));
  return absl::OkStatus();
}

// GGUF marks where a word begins (U+2581), WordPiece where it goes on ("##"): turned back here.
std::string WordPieceOf(std::string_view token) {
  if (token.starts_with(kSpace)) return std::string(token.substr(kSpace.size()));
  if (token.size() > 2 && token.front() == '[' && token.back() == ']') return std::string(token);
  return "##" + std::string(token);
}

absl::Status FillWordPiece(const GgufFile& file, const Vocab& vocab, TokenizerSpec* spec) {
  spec->model.kind = TokenizerModel::Kind::kWordPiece;
  spec->model.continuing_subword_prefix = "##";
  bool cased = false;
  for (size_t i = 0; i < vocab.tokens->size(); ++i) {
    const std::string_view token = (*vocab.tokens)[i];
    if (vocab.types[i] == PieceType::kControl || vocab.types[i] == PieceType::kUnknown) {
      AddToken(vocab, i, spec);
      spec->model.vocab.push_back({.piece = std::string(token), .id = static_cast<int32_t>(i)});
      continue;
    }
    std::string piece = WordPieceOf(token);
    cased = cased || (piece[0] >= 'A' && piece[0] <= 'Z');
    spec->model.vocab.push_back({.piece = std::move(piece), .id = static_cast<int32_t>(i)});
  }
  if (!spec->model.unk_id.has_value()) {
    return InvalidArgument("%s: no 'tokenizer.ggml.unknown_token_id'", file.name());
  }
  spec->model.unk_token = std::string((*vocab.tokens)[*spec->model.unk_id]);
  NormalizerStep normalizer{.kind = NormalizerStep::Kind::kBert};
  normalizer.lowercase = !cased;
  spec->normalizer.push_back(std::move(normalizer));
  spec->pre_tokenizer.push_back({.kind = PreTokenizerStep::Kind::kBert});
  spec->decoder.push_back({.kind = DecoderStep::Kind::kWordPiece});
  // [CLS] text [SEP]: named as bos (or cls) and sep (or eos).
  const auto id_of = [&](const char* first,
                         const char* second) -> absl::StatusOr<std::optional<int32_t>> {
    ASSIGN_OR_RETURN(const auto id, IdOf(file, first, vocab.tokens->size()));
    if (id.has_value()) return id;
    return IdOf(file, second, vocab.tokens->size());
  };
  ASSIGN_OR_RETURN(const std::optional<int32_t> cls, id_of("cls_token_id", "bos_token_id"));
  ASSIGN_OR_RETURN(const std::optional<int32_t> sep, id_of("seperator_token_id", "eos_token_id"));
  std::vector<TemplateItem> around;
  if (cls.has_value()) around.push_back({.ids = {*cls}});
  around.push_back({.is_text = true});
  if (sep.has_value()) around.push_back({.ids = {*sep}});
  spec->post_processor.push_back(std::move(around));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerSpec> TokenizerSpecFromGguf(const GgufFile& file) {
  ASSIGN_OR_RETURN(const auto model, file.String("tokenizer.ggml.model"));
  if (!model.has_value()) {
    return InvalidArgument("%s: no key 'tokenizer.ggml.model': it has no vocabulary", file.name());
  }
  ASSIGN_OR_RETURN(const Vocab vocab, ReadVocab(file));
  TokenizerSpec spec;
  RETURN_IF_ERROR(ReadSpecials(file, vocab, &spec));
  if (*model == "gpt2") {
    RETURN_IF_ERROR(FillByteLevelBpe(file, vocab, &spec));
  } else if (*model == "llama" || *model == "t5") {
    RETURN_IF_ERROR(FillSentencePiece(file, vocab, *model == "t5", &spec));
  } else if (*model == "bert") {
    RETURN_IF_ERROR(FillWordPiece(file, vocab, &spec));
  } else {
    return Unimplemented("%s: vocabulary kind '%s' is not supported (gpt2, llama, t5 and bert are)",
                         file.name(), *model);
  }
  RETURN_IF_ERROR(ReadAddFlags(file, &spec));
  return spec;
}

absl::StatusOr<std::vector<int32_t>> EosIdsFromGguf(const GgufFile& file) {
  ASSIGN_OR_RETURN(const Vocab vocab, ReadVocab(file));
  std::set<int32_t> ids;
  bool names_eot = false;
  for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
    ASSIGN_OR_RETURN(const std::optional<int32_t> id, IdOf(file, key, vocab.tokens->size()));
    if (!id.has_value()) continue;
    ids.insert(*id);
    names_eot = names_eot || key == std::string_view("eot_token_id");
  }
  if (!names_eot) {
    constexpr std::string_view kTurnEnds[] = {"<|eot_id|>", "<|im_end|>", "<|end|>",
                                              "<end_of_turn>", "<|eom_id|>"};
    // Where there is a <|return|>, <|end|> only closes a part of an answer.
    const bool parts =
        std::find(vocab.tokens->begin(), vocab.tokens->end(), "<|return|>") != vocab.tokens->end();
    for (size_t i = 0; i < vocab.tokens->size(); ++i) {
      if (vocab.types[i] != PieceType::kControl && vocab.types[i] != PieceType::kUserDefined) {
        continue;
      }
      for (const std::string_view end : kTurnEnds) {
        if ((*vocab.tokens)[i] != end || (parts && end == "<|end|>")) continue;
        ids.insert(static_cast<int32_t>(i));
      }
    }
  }
  return std::vector<int32_t>(ids.begin(), ids.end());
}

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> TemplatesFromGguf(
    const GgufFile& file) {
  std::vector<std::pair<std::string, std::string>> templates;
  ASSIGN_OR_RETURN(const auto main, file.String("tokenizer.chat_template"));
  if (main.has_value()) templates.emplace_back("default", *main);
  ASSIGN_OR_RETURN(const GgufArray* names, file.Array("tokenizer.chat_templates"));
  if (names == nullptr) return templates;
  for (const std::string_view name : names->strings) {
    const std::string key = "tokenizer.chat_template." + std::string(name);
    ASSIGN_OR_RETURN(const auto source, file.String(key));
    if (!source.has_value()) {
      return InvalidArgument("%s: 'tokenizer.chat_templates' names '%s', but there is no key '%s'",
                             file.name(), name, key);
    }
    if (name != "default") templates.emplace_back(name, *source);
  }
  return templates;
}

}  // namespace penstock
