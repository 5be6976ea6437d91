#include "common/text/tokenizer.h"

#include <utility>

#include "common/base/status.h"
#include "common/text/tokenizer_impl.h"
#include "common/text/utf8.h"

namespace penstock {
namespace {

// The text with every broken sequence replaced, stretch by stretch, so that ranges stay true.
MarkedText Repaired(const MarkedText& marked) {
  MarkedText out;
  size_t pos = 0;
  const std::string_view text = marked.text;
  for (const auto& [begin, end] : marked.user_ranges) {
    AppendLossyUtf8(&out.text, text.substr(pos, begin - pos));
    const size_t from = out.text.size();
    AppendLossyUtf8(&out.text, text.substr(begin, end - begin));
    out.user_ranges.emplace_back(from, out.text.size());
    pos = end;
  }
  AppendLossyUtf8(&out.text, text.substr(pos));
  return out;
}

absl::Status CheckRanges(const MarkedText& marked) {
  size_t pos = 0;
  for (const auto& [begin, end] : marked.user_ranges) {
    if (begin < pos || end < begin || end > marked.text.size()) {
      return Internal("user range [%d, %d) of a text of %d bytes is out of order", begin, end,
                      marked.text.size());
    }
    pos = end;
  }
  return absl::OkStatus();
}

bool CutsCharacter(const MarkedText& marked) {
  const auto inside = [&](size_t at) {
    return at < marked.text.size() && (static_cast<uint8_t>(marked.text[at]) & 0xC0) == 0x80;
  };
  for (const auto& [begin, end] : marked.user_ranges) {
    if (inside(begin) || inside(end)) return true;
  }
  return false;
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<TokenizerImpl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

absl::StatusOr<std::unique_ptr<const Tokenizer>> Tokenizer::Create(TokenizerSpec spec) {
  ASSIGN_OR_RETURN(auto impl, TokenizerImpl::Create(std::move(spec)));
  return std::unique_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(std::string_view text,
                                                       const EncodeOptions& options) const {
  std::string repaired;
  if (!IsValidUtf8(text)) {
    repaired = LossyUtf8(text);
    text = repaired;
  }
  TokenizerImpl::Ranges user;
  if (options.plain && !text.empty()) user.emplace_back(0, text.size());
  return impl_->Encode(text, user, options.add_special);
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::EncodeMarked(const MarkedText& marked,
                                                             bool add_special) const {
  RETURN_IF_ERROR(CheckRanges(marked));
  if (IsValidUtf8(marked.text) && !CutsCharacter(marked)) {
    return impl_->Encode(marked.text, marked.user_ranges, add_special);
  }
  const MarkedText repaired = Repaired(marked);
  return impl_->Encode(repaired.text, repaired.user_ranges, add_special);
}

std::string Tokenizer::Decode(const std::vector<int32_t>& ids, bool skip_special) const {
  return impl_->Decode(ids, skip_special);
}
std::string Tokenizer::TokenBytes(int32_t id) const { return impl_->TokenBytes(id); }
std::string_view Tokenizer::IdToToken(int32_t id) const { return impl_->Token(id); }
std::optional<int32_t> Tokenizer::TokenToId(std::string_view token) const {
  return impl_->Find(token);
}
int32_t Tokenizer::vocab_size() const { return impl_->end_id; }
const std::vector<int32_t>& Tokenizer::special_ids() const { return impl_->special_ids; }
bool Tokenizer::IsSpecial(int32_t id) const { return impl_->IsSpecial(id); }
std::optional<int32_t> Tokenizer::bos_id() const { return impl_->bos_id; }
std::optional<int32_t> Tokenizer::eos_id() const { return impl_->eos_id; }
const std::vector<std::pair<std::string, std::string>>& Tokenizer::special_tokens() const {
  return impl_->names;
}
const std::vector<AddedToken>& Tokenizer::added_tokens() const { return impl_->added; }
int32_t Tokenizer::max_token_bytes() const { return impl_->max_token_bytes; }

}  // namespace penstock
