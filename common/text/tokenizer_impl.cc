#include "common/text/tokenizer_impl.h"

#include <algorithm>
#include <set>

#include "common/base/status.h"
#include "common/text/byte_level.h"
#include "common/text/unicode/unicode.h"
#include "common/text/utf8.h"

namespace penstock {
namespace {

constexpr size_t kMaxIdleScratch = 16;
constexpr std::string_view kMetaspace = "\xE2\x96\x81";

// White space may be told apart by added tokens also in plain text: it controls nothing.
bool IsBlank(std::string_view text) {
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = NextChar(text, &pos);
    if (c != 0x2581 && !unicode::Is(c, unicode::kSpace)) return false;
  }
  return true;
}

bool Intersects(const TokenizerImpl::Ranges& ranges, size_t begin, size_t end) {
  const auto it = std::upper_bound(ranges.begin(), ranges.end(), begin,
                                   [](size_t at, const auto& range) { return at < range.second; });
  return it != ranges.end() && it->first < end;
}

// Calls visit(begin, end) for what lies in [begin, end) outside all ranges.
template <typename Visit>
void Outside(const TokenizerImpl::Ranges& ranges, size_t begin, size_t end, Visit visit) {
  auto it = std::upper_bound(ranges.begin(), ranges.end(), begin,
                             [](size_t at, const auto& range) { return at < range.second; });
  for (; it != ranges.end() && it->first < end; ++it) {
    if (it->first > begin) visit(begin, it->first);
    begin = it->second;
  }
  if (begin < end) visit(begin, end);
}

absl::Status CheckStrings(const TokenizerSpec& spec) {
  const bool bytes = spec.model.kind == TokenizerModel::Kind::kTiktoken;
  for (const VocabEntry& entry : spec.model.vocab) {
    if (!bytes && !IsValidUtf8(entry.piece)) {
      return InvalidArgument("the token of id %d is not UTF-8", entry.id);
    }
  }
  for (const AddedToken& token : spec.added_tokens) {
    if (token.content.empty() || !IsValidUtf8(token.content)) {
      return InvalidArgument("added token of id %d: content must be UTF-8 and not empty", token.id);
    }
    if (token.id < 0 || token.id > Vocabulary::kMaxId) {
      return InvalidArgument("added token '%s': id %d must be from 0 to %d", token.content,
                             token.id, Vocabulary::kMaxId);
    }
  }
  return absl::OkStatus();
}

// What sentencepiece prints for its control pieces (nothing) and the unknown piece.
std::unordered_map<int32_t, std::string> PrintedAs(const TokenizerModel& model) {
  std::unordered_map<int32_t, std::string> printed;
  for (size_t i = 0; i < std::min(model.piece_types.size(), model.vocab.size()); ++i) {
    if (model.piece_types[i] == PieceType::kControl) printed[model.vocab[i].id] = "";
    if (model.piece_types[i] == PieceType::kUnknown) {
      printed[model.vocab[i].id] = model.unk_surface;
    }
  }
  return printed;
}

PieceForm FormOf(const TokenizerSpec& spec) {
  if (spec.model.kind == TokenizerModel::Kind::kTiktoken) return PieceForm::kRawBytes;
  bool metaspace = false;
  for (const DecoderStep& step : spec.decoder) {
    if (step.kind == DecoderStep::Kind::kByteLevel) return PieceForm::kByteLevel;
    metaspace = metaspace || step.kind == DecoderStep::Kind::kMetaspace ||
                step.kind == DecoderStep::Kind::kSentencePiece ||
                (step.kind == DecoderStep::Kind::kReplace && step.pattern.text == kMetaspace);
  }
  return metaspace ? PieceForm::kMetaspace : PieceForm::kPlain;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TokenizerImpl>> TokenizerImpl::Create(TokenizerSpec spec) {
  RETURN_IF_ERROR(CheckStrings(spec));
  const bool tiktoken = spec.model.kind == TokenizerModel::Kind::kTiktoken;
  const bool bytes = spec.model.kind == TokenizerModel::Kind::kBpe && !spec.model.byte_fallback &&
                     PreTokenizer::EndsInByteLevel(spec.pre_tokenizer);
  ASSIGN_OR_RETURN(Normalizer normalizer, Normalizer::Create(spec.normalizer));
  ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, PreTokenizer::Create(spec.pre_tokenizer, bytes));
  const bool joined =
      spec.decoder.size() == 1 && spec.decoder[0].kind == DecoderStep::Kind::kSentencePiece;
  ASSIGN_OR_RETURN(
      TokenDecoder decoder,
      TokenDecoder::Create(joined ? std::vector<DecoderStep>{} : spec.decoder, tiktoken));
  std::unordered_map<int32_t, std::string> printed = PrintedAs(spec.model);
  ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::Create(std::move(spec.model.vocab)));
  std::unique_ptr<TokenizerImpl> impl(new TokenizerImpl(
      std::move(vocabulary), std::move(normalizer), std::move(pre_tokenizer), std::move(decoder)));
  RETURN_IF_ERROR(impl->AddTokens(std::move(spec.added_tokens)));
  ModelContext context{.vocabulary = &impl->vocabulary_,
                       .blocked = std::vector<bool>(impl->end_id),
                       .want_bytes = bytes};
  for (const AddedToken& token : impl->added) {
    context.blocked[token.id] = token.special || !IsBlank(token.content);
  }
  for (const AddedToken& token : impl->added) printed.erase(token.id);
  // An added token that is looked for in normalised text also prints as it is found there.
  for (const auto& [id, content] : impl->normalized_content_) printed[id] = content;
  impl->printed_as_ = std::move(printed);
  impl->byte_fallback_ = spec.model.byte_fallback;
  impl->form_ = FormOf(spec);
  TokenizerModel model = std::move(spec.model);
  const TokenizerModel::Kind kind = model.kind;
  ASSIGN_OR_RETURN(impl->model_, NewTokenModel(std::move(model), std::move(context)));
  spec.model = TokenizerModel{};
  spec.model.kind = kind;
  impl->Finish(spec);
  return impl;
}

absl::Status TokenizerImpl::AddTokens(std::vector<AddedToken> tokens) {
  end_id = vocabulary_.end_id();
  std::vector<AddedTokenMatcher::Pattern> raw, normalized;
  std::set<std::string> special;
  for (const AddedToken& token : tokens) {
    end_id = std::max(end_id, token.id + 1);
    if (token.special) special.insert(token.content);
  }
  if (static_cast<size_t>(end_id) > 1024 + (vocabulary_.size() + tokens.size()) * 64) {
    return InvalidArgument("added token of id %d: too far from the vocabulary's ids", end_id - 1);
  }
  added_index_.assign(end_id, -1);
  special_.assign(end_id, false);
  for (size_t i = 0; i < tokens.size(); ++i) {
    added_ids_[tokens[i].content] = tokens[i].id;
    added_index_[tokens[i].id] = static_cast<int32_t>(i);
  }
  for (const AddedToken& token : tokens) {
    if (!token.in_text) continue;
    if (!token.normalized) {
      raw.push_back({token.content, token});
      continue;
    }
    NormalizedText content{.text = token.content, .track = false, .origin = {}};
    RETURN_IF_ERROR(normalizer_.Apply(&content));
    normalized_content_[token.id] = content.text;
    normalized.push_back({std::move(content.text), token});
  }
  // Special tokens come first where two patterns are the same text.
  for (auto* patterns : {&raw, &normalized}) {
    std::stable_partition(patterns->begin(), patterns->end(),
                          [](const auto& pattern) { return pattern.token.special; });
  }
  raw_matcher_.Build(std::move(raw));
  normalized_matcher_.Build(std::move(normalized));
  added = std::move(tokens);
  for (int32_t id = 0; id < end_id; ++id) {
    // The reference looks up what it would print.
    const auto shown = normalized_content_.find(id);
    special_[id] = special.count(shown == normalized_content_.end() ? std::string(Token(id))
                                                                    : shown->second) > 0;
    if (special_[id]) special_ids.push_back(id);
  }
  return absl::OkStatus();
}

void TokenizerImpl::Finish(const TokenizerSpec& spec) {
  names = spec.special_tokens;
  bos_id = spec.bos_id;
  eos_id = spec.eos_id;
  templates_ = spec.post_processor;
  if (templates_.empty() && (spec.add_bos || spec.add_eos)) {
    std::vector<TemplateItem> around;
    if (spec.add_bos && bos_id.has_value()) around.push_back({false, {*bos_id}});
    around.push_back({true, {}});
    if (spec.add_eos && eos_id.has_value()) around.push_back({false, {*eos_id}});
    templates_.push_back(std::move(around));
  }
  const auto find_name = [&](std::string_view name, std::optional<int32_t>* id) {
    for (const auto& [key, content] : names) {
      if (key == name && !id->has_value()) *id = Find(content);
    }
  };
  find_name("bos_token", &bos_id);
  find_name("eos_token", &eos_id);
  SetJoining(spec);
  SetMaxTokenBytes(spec);
}

void TokenizerImpl::SetJoining(const TokenizerSpec& spec) {
  using Kind = DecoderStep::Kind;
  if (form_ == PieceForm::kRawBytes) {
    joining_ = spec.decoder.empty() ? Joining::kBytes : Joining::kNone;
  } else if (spec.decoder.size() == 1) {
    const DecoderStep& step = spec.decoder[0];
    if (step.kind == Kind::kByteLevel) joining_ = Joining::kBytes;
    if (step.kind == Kind::kSentencePiece) joining_ = Joining::kSentencePiece;
    drops_every_space_ = step.drop_all_first;
    drops_space_ = step.drop_first || step.drop_all_first;
  }
  if (joining_ == Joining::kNone) return;
  bytes_.resize(end_id);
  for (int32_t id = 0; id < end_id; ++id) bytes_[id] = BytesOf(Printed(id));
}

bool TokenizerImpl::DropsSpace(int32_t id) const {
  return drops_space_ && Printed(id).starts_with(kMetaspace);
}

void TokenizerImpl::SetMaxTokenBytes(const TokenizerSpec& spec) {
  // NFC makes no text shorter than a third of its bytes; other normalisers might.
  const bool only_nfc =
      std::all_of(spec.normalizer.begin(), spec.normalizer.end(), [](const auto& step) {
        return step.kind == NormalizerStep::Kind::kNfc || step.kind == NormalizerStep::Kind::kNfc14;
      });
  bool strips = false;
  size_t longest = 1;
  for (const AddedToken& token : added) {
    strips = strips || token.lstrip || token.rstrip;
    longest = std::max(longest, token.content.size());
  }
  if ((normalizer_.can_shrink() && !only_nfc) || pre_tokenizer_.can_shrink() ||
      model_->can_shrink() || strips) {
    return;
  }
  for (int32_t id = 0; id < end_id; ++id) longest = std::max(longest, Token(id).size());
  max_token_bytes =
      static_cast<int32_t>(std::min<size_t>(longest * (spec.normalizer.empty() ? 1 : 3), 1 << 30));
}

std::string_view TokenizerImpl::Token(int32_t id) const {
  if (id < 0 || id >= end_id) return {};
  const int32_t index = added_index_[id];
  if (index >= 0 && static_cast<size_t>(index) < added.size()) return added[index].content;
  return vocabulary_.Piece(id);
}

std::optional<int32_t> TokenizerImpl::Find(std::string_view token) const {
  const auto it = added_ids_.find(std::string(token));
  return it != added_ids_.end() ? std::optional<int32_t>(it->second) : vocabulary_.Find(token);
}

std::string TokenizerImpl::TokenBytes(int32_t id) const { return BytesOf(Token(id)); }

std::string TokenizerImpl::BytesOf(std::string_view piece) const {
  const std::string token(piece);
  switch (form_) {
    case PieceForm::kRawBytes:
      return token;
    case PieceForm::kByteLevel:
      return ByteAlphabet::Get().Decode(token).value_or(token);
    case PieceForm::kPlain:
    case PieceForm::kMetaspace:
      break;
  }
  if (byte_fallback_) {
    const std::optional<uint8_t> byte = ByteOfPiece(token);
    if (byte.has_value()) return std::string(1, static_cast<char>(*byte));
  }
  if (form_ == PieceForm::kPlain) return token;
  std::string out;
  for (size_t pos = 0; pos < token.size();) {
    if (token.compare(pos, kMetaspace.size(), kMetaspace) == 0) {
      out += ' ';
      pos += kMetaspace.size();
    } else {
      out += token[pos++];
    }
  }
  return out;
}

std::unique_ptr<ModelScratch> TokenizerImpl::TakeScratch() const {
  const std::lock_guard lock(scratch_mutex_);
  if (idle_scratch_.empty()) return std::make_unique<ModelScratch>();
  std::unique_ptr<ModelScratch> scratch = std::move(idle_scratch_.back());
  idle_scratch_.pop_back();
  return scratch;
}

void TokenizerImpl::GiveScratch(std::unique_ptr<ModelScratch> scratch) const {
  const std::lock_guard lock(scratch_mutex_);
  if (idle_scratch_.size() < kMaxIdleScratch) idle_scratch_.push_back(std::move(scratch));
}

absl::StatusOr<std::vector<int32_t>> TokenizerImpl::Encode(std::string_view text,
                                                           const Ranges& user,
                                                           bool add_special) const {
  std::vector<int32_t> ids;
  std::vector<AddedTokenMatcher::Match> matches;
  if (!raw_matcher_.empty()) {
    Outside(user, 0, text.size(),
            [&](size_t begin, size_t end) { raw_matcher_.Find(text, begin, end, &matches); });
  }
  std::unique_ptr<ModelScratch> scratch = TakeScratch();
  const auto encode_all = [&]() -> absl::Status {
    size_t pos = 0;
    for (const auto& match : matches) {
      if (match.begin > pos) {
        RETURN_IF_ERROR(EncodePiece(text, pos, match.begin, user, scratch.get(), &ids));
      }
      ids.push_back(match.id);
      pos = match.end;
    }
    if (pos < text.size()) {
      RETURN_IF_ERROR(EncodePiece(text, pos, text.size(), user, scratch.get(), &ids));
    }
    return absl::OkStatus();
  };
  const absl::Status status = encode_all();
  GiveScratch(std::move(scratch));
  RETURN_IF_ERROR(status);
  return add_special ? AroundText(std::move(ids)) : std::move(ids);
}

absl::Status TokenizerImpl::EncodePiece(std::string_view text, size_t begin, size_t end,
                                        const Ranges& user, ModelScratch* scratch,
                                        std::vector<int32_t>* out) const {
  const std::string_view piece = text.substr(begin, end - begin);
  const bool plain = Intersects(user, begin, end);
  if (normalizer_.empty() && normalized_matcher_.empty()) {
    return pre_tokenizer_.Run({piece, begin == 0}, [&](const PreToken& token) {
      return model_->Encode(token.text, plain, scratch, out);
    });
  }
  // Where a byte came from matters for the first character of the input, and for which added
  // tokens stand in user data.
  NormalizedText normalized{.text = std::string(piece),
                            .track = (plain && !normalized_matcher_.empty()) ||
                                     (begin == 0 && pre_tokenizer_.needs_start()),
                            .origin = {}};
  RETURN_IF_ERROR(normalizer_.Apply(&normalized));
  return EncodeNormalized(normalized, begin, plain, user, scratch, out);
}

absl::Status TokenizerImpl::EncodeNormalized(const NormalizedText& text, size_t offset, bool plain,
                                             const Ranges& user, ModelScratch* scratch,
                                             std::vector<int32_t>* out) const {
  const std::string_view all = text.text;
  std::vector<AddedTokenMatcher::Match> matches;
  if (!normalized_matcher_.empty()) {
    Ranges user_here;  // in the normalised text
    for (size_t i = 0; plain && i < all.size(); ++i) {
      const size_t from = offset + text.origin[i];
      if (!Intersects(user, from, from + 1)) continue;
      if (user_here.empty() || user_here.back().second != i) user_here.push_back({i, i});
      user_here.back().second = i + 1;
    }
    Outside(user_here, 0, all.size(),
            [&](size_t begin, size_t end) { normalized_matcher_.Find(all, begin, end, &matches); });
  }
  const auto run = [&](size_t begin, size_t end) {
    const bool at_start = offset == 0 && (text.track ? text.origin[begin] == 0 : begin == 0);
    return pre_tokenizer_.Run(
        {all.substr(begin, end - begin), at_start},
        [&](const PreToken& token) { return model_->Encode(token.text, plain, scratch, out); });
  };
  size_t pos = 0;
  for (const auto& match : matches) {
    if (match.begin > pos) RETURN_IF_ERROR(run(pos, match.begin));
    out->push_back(match.id);
    pos = match.end;
  }
  return pos < all.size() ? run(pos, all.size()) : absl::OkStatus();
}

std::vector<int32_t> TokenizerImpl::AroundText(std::vector<int32_t> ids) const {
  for (const std::vector<TemplateItem>& items : templates_) {
    std::vector<int32_t> result;
    for (const TemplateItem& item : items) {
      const std::vector<int32_t>& part = item.is_text ? ids : item.ids;
      result.insert(result.end(), part.begin(), part.end());
    }
    ids = std::move(result);
  }
  return ids;
}

std::string TokenizerImpl::DecodeJoined(const std::vector<int32_t>& ids, bool skip_special) const {
  std::string bytes;
  bool dropped = false;
  for (const int32_t id : ids) {
    if (skip_special && IsSpecial(id)) continue;
    std::string_view fresh = JoinedBytes(id);
    if (joining_ == Joining::kSentencePiece && bytes.empty() && !dropped && DropsSpace(id)) {
      fresh.remove_prefix(1);
      dropped = !drops_every_space_;
    }
    bytes += fresh;
  }
  if (joining_ == Joining::kBytes) return LossyUtf8(bytes);
  std::string text;
  AppendLossyBytes(&text, bytes);
  return text;
}

std::string TokenizerImpl::Decode(const std::vector<int32_t>& ids, bool skip_special) const {
  if (joining_ != Joining::kNone) return DecodeJoined(ids, skip_special);
  std::vector<std::string> tokens;
  for (const int32_t id : ids) {
    if (id < 0 || id >= end_id || (skip_special && IsSpecial(id))) continue;
    if (added_index_[id] < 0 && !vocabulary_.Has(id)) continue;
    tokens.emplace_back(Printed(id));
  }
  return decoder_.Decode(std::move(tokens));
}

}  // namespace penstock
