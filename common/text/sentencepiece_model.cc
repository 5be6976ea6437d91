#include "common/text/sentencepiece_model.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "common/base/status.h"

namespace penstock {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581

// Protobuf's wire format: only what ModelProto needs.
struct WireField {
  uint32_t number = 0;
  uint32_t type = 0;       // 0 varint, 1 fixed64, 2 bytes, 5 fixed32
  uint64_t value = 0;      // varint and fixed
  std::string_view bytes;  // type 2
};

class WireReader {
 public:
  explicit WireReader(std::string_view data) : data_(data) {}
  bool done() const { return data_.empty(); }

  // nullopt: damaged.
  std::optional<WireField> Next() {
    const std::optional<uint64_t> tag = Varint();
    if (!tag.has_value() || *tag >> 3 == 0 || *tag >> 3 > 0x1FFFFFFF) return std::nullopt;
    WireField field{.number = static_cast<uint32_t>(*tag >> 3),
                    .type = static_cast<uint32_t>(*tag & 7)};
    if (field.type == 0) {
      const std::optional<uint64_t> value = Varint();
      if (!value.has_value()) return std::nullopt;
      field.value = *value;
      return field;
    }
    size_t size = 0;
    if (field.type == 1) {
      size = 8;
    } else if (field.type == 5) {
      size = 4;
    } else if (field.type == 2) {
      const std::optional<uint64_t> length = Varint();
      if (!length.has_value() || *length > data_.size()) return std::nullopt;
      field.bytes = data_.substr(0, *length);
      data_.remove_prefix(*length);
      return field;
    } else {
      return std::nullopt;  // groups: never written by anyone today
    }
    if (size > data_.size()) return std::nullopt;
    std::memcpy(&field.value, data_.data(), size);
    data_.remove_prefix(size);
    return field;
  }

 private:
  std::optional<uint64_t> Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (data_.empty()) return std::nullopt;
      const auto byte = static_cast<uint8_t>(data_.front());
      data_.remove_prefix(1);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  std::string_view data_;
};

absl::Status Damaged(const std::string& name, std::string_view where) {
  return InvalidArgument("%s: damaged, truncated or no SentencePiece model: bad field in %s", name,
                         where);
}

constexpr PieceType kPieceTypes[] = {
    PieceType::kNormal,      PieceType::kNormal, PieceType::kUnknown, PieceType::kControl,
    PieceType::kUserDefined, PieceType::kUnused, PieceType::kByte};

struct Trainer {
  uint64_t model_type = 1;  // 1 unigram, 2 BPE, 3 word, 4 char
  bool treat_whitespace_as_suffix = false;
  bool byte_fallback = false;
  std::string unk_piece = "<unk>";
  std::string bos_piece = "<s>";
  std::string eos_piece = "</s>";
  std::string pad_piece = "<pad>";
  std::string unk_surface = TokenizerModel().unk_surface;
};

absl::Status ReadPiece(std::string_view bytes, const std::string& name, TokenizerSpec* spec) {
  WireReader reader(bytes);
  VocabEntry entry{.id = static_cast<int32_t>(spec->model.vocab.size())};
  PieceType type = PieceType::kNormal;
  while (!reader.done()) {
    const std::optional<WireField> field = reader.Next();
    if (!field.has_value()) return Damaged(name, "a piece");
    if (field->number == 1 && field->type == 2) {
      entry.piece = std::string(field->bytes);
    } else if (field->number == 2 && field->type == 5) {
      const auto bits = static_cast<uint32_t>(field->value);
      float score = 0;
      std::memcpy(&score, &bits, sizeof(score));
      entry.score = score;
    } else if (field->number == 3 && field->type == 0) {
      if (field->value < 1 || field->value >= std::size(kPieceTypes)) {
        return InvalidArgument("%s: piece %d has unknown type %d", name, entry.id, field->value);
      }
      type = kPieceTypes[field->value];
    }
  }
  if (entry.piece.empty()) return InvalidArgument("%s: piece %d is empty", name, entry.id);
  spec->model.vocab.push_back(std::move(entry));
  spec->model.piece_types.push_back(type);
  return absl::OkStatus();
}

absl::Status ReadTrainer(std::string_view bytes, const std::string& name, Trainer* trainer) {
  WireReader reader(bytes);
  while (!reader.done()) {
    const std::optional<WireField> field = reader.Next();
    if (!field.has_value()) return Damaged(name, "trainer_spec");
    if (field->type == 0) {
      if (field->number == 3) trainer->model_type = field->value;
      if (field->number == 24) trainer->treat_whitespace_as_suffix = field->value != 0;
      if (field->number == 35) trainer->byte_fallback = field->value != 0;
    } else if (field->type == 2) {
      if (field->number == 44) trainer->unk_surface = std::string(field->bytes);
      if (field->number == 45) trainer->unk_piece = std::string(field->bytes);
      if (field->number == 46) trainer->bos_piece = std::string(field->bytes);
      if (field->number == 47) trainer->eos_piece = std::string(field->bytes);
      if (field->number == 48) trainer->pad_piece = std::string(field->bytes);
    }
  }
  return absl::OkStatus();
}

absl::Status ReadNormalizer(std::string_view bytes, const std::string& name,
                            NormalizerStep* normalizer) {
  WireReader reader(bytes);
  while (!reader.done()) {
    const std::optional<WireField> field = reader.Next();
    if (!field.has_value()) return Damaged(name, "normalizer_spec");
    if (field->number == 2 && field->type == 2) normalizer->charsmap = std::string(field->bytes);
    if (field->type != 0) continue;
    if (field->number == 3) normalizer->add_dummy_prefix = field->value != 0;
    if (field->number == 4) normalizer->remove_extra_whitespaces = field->value != 0;
    if (field->number == 5) normalizer->escape_whitespaces = field->value != 0;
  }
  return absl::OkStatus();
}

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

// The id of a special piece as the library finds it: only if it has the right type.
std::optional<int32_t> IdOfPiece(const TokenizerModel& model, std::string_view piece,
                                 PieceType type) {
  for (size_t i = 0; i < model.vocab.size(); ++i) {
    if (model.piece_types[i] == type && model.vocab[i].piece == piece) return model.vocab[i].id;
  }
  return std::nullopt;
}

absl::Status NameSpecials(const Trainer& trainer, const std::string& name, TokenizerSpec* spec) {
  TokenizerModel& model = spec->model;
  spec->bos_id = IdOfPiece(model, trainer.bos_piece, PieceType::kControl);
  spec->eos_id = IdOfPiece(model, trainer.eos_piece, PieceType::kControl);
  for (size_t i = 0; i < model.vocab.size(); ++i) {
    if (model.piece_types[i] == PieceType::kUnknown) model.unk_id = model.vocab[i].id;
  }
  if (!model.unk_id.has_value()) {
    return InvalidArgument("%s: none of its %d pieces is the unknown piece", name,
                           model.vocab.size());
  }
  if (spec->bos_id.has_value()) spec->special_tokens.emplace_back("bos_token", trainer.bos_piece);
  if (spec->eos_id.has_value()) spec->special_tokens.emplace_back("eos_token", trainer.eos_piece);
  spec->special_tokens.emplace_back("unk_token", model.vocab[*model.unk_id].piece);
  if (IdOfPiece(model, trainer.pad_piece, PieceType::kControl).has_value()) {
    spec->special_tokens.emplace_back("pad_token", trainer.pad_piece);
  }
  spec->add_bos = spec->bos_id.has_value();
  return absl::OkStatus();
}

}  // namespace

bool LooksLikeSentencePiece(std::string_view bytes) {
  WireReader file(bytes);
  const std::optional<WireField> first = file.Next();
  if (!first.has_value() || first->number != 1 || first->type != 2) return false;
  WireReader piece(first->bytes);
  const std::optional<WireField> text = piece.Next();
  return text.has_value() && text->number == 1 && text->type == 2;
}

absl::StatusOr<TokenizerSpec> SpecFromSentencePiece(std::string_view bytes,
                                                    const std::string& name) {
  TokenizerSpec spec;
  Trainer trainer;
  NormalizerStep normalizer{.kind = NormalizerStep::Kind::kSentencePiece};
  WireReader reader(bytes);
  while (!reader.done()) {
    const std::optional<WireField> field = reader.Next();
    if (!field.has_value()) return Damaged(name, "ModelProto");
    if (field->type != 2) continue;
    switch (field->number) {
      case 1:
        RETURN_IF_ERROR(ReadPiece(field->bytes, name, &spec));
        break;
      case 2:
        RETURN_IF_ERROR(ReadTrainer(field->bytes, name, &trainer));
        break;
      case 3:
        RETURN_IF_ERROR(ReadNormalizer(field->bytes, name, &normalizer));
        break;
      case 5: {
        NormalizerStep denormalizer;
        RETURN_IF_ERROR(ReadNormalizer(field->bytes, name, &denormalizer));
        if (!denormalizer.charsmap.empty()) {
          return Unimplemented("%s: a denormaliser is not supported", name);
        }
        break;
      }
      default:
        break;  // self-test data and extensions
    }
  }
  if (spec.model.vocab.empty()) return InvalidArgument("%s has no pieces", name);
  if (trainer.model_type != 1 && trainer.model_type != 2) {
    return Unimplemented("%s: model type %s is not supported (unigram and BPE are)", name,
                         trainer.model_type == 3   ? "WORD"
                         : trainer.model_type == 4 ? "CHAR"
                                                   : std::to_string(trainer.model_type));
  }
  spec.model.kind = trainer.model_type == 1 ? TokenizerModel::Kind::kSentencePieceUnigram
                                            : TokenizerModel::Kind::kSentencePieceBpe;
  spec.model.byte_fallback = trainer.byte_fallback;
  spec.model.unk_surface = trainer.unk_surface;
  normalizer.treat_whitespace_as_suffix = trainer.treat_whitespace_as_suffix;
  for (size_t i = 0; i < spec.model.vocab.size(); ++i) {
    if (spec.model.piece_types[i] == PieceType::kUserDefined) {
      normalizer.user_symbols.push_back(spec.model.vocab[i].piece);
    }
  }
  RETURN_IF_ERROR(NameSpecials(trainer, name, &spec));
  DecoderStep decoder{.kind = DecoderStep::Kind::kSentencePiece};
  decoder.drop_first = normalizer.add_dummy_prefix;
  decoder.drop_all_first = normalizer.remove_extra_whitespaces;
  spec.decoder.push_back(std::move(decoder));
  spec.normalizer.push_back(std::move(normalizer));
  return spec;
}

void RecogniseControlPieces(TokenizerSpec* spec) {
  TokenizerModel& model = spec->model;
  std::vector<std::string>* symbols = nullptr;
  for (NormalizerStep& step : spec->normalizer) {
    if (step.kind == NormalizerStep::Kind::kSentencePiece) symbols = &step.user_symbols;
  }
  for (size_t i = 0; i < model.piece_types.size(); ++i) {
    const VocabEntry& entry = model.vocab[i];
    PieceType& type = model.piece_types[i];
    const bool marker = type == PieceType::kUserDefined && !IsWhitespacePiece(entry.piece);
    if (type != PieceType::kControl && !marker) continue;
    AddedToken token;
    token.id = entry.id;
    token.content = entry.piece;
    token.special = type == PieceType::kControl;
    spec->added_tokens.push_back(std::move(token));
    if (!marker) continue;
    type = PieceType::kUnused;  // the model itself never yields it from a user's text
    if (symbols != nullptr) std::erase(*symbols, entry.piece);
  }
}

}  // namespace penstock
