#include "common/text/normalizer.h"

#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "common/text/byte_level.h"
#include "common/text/charsmap.h"
#include "common/text/normalizer_op.h"
#include "common/text/regex.h"
#include "common/text/unicode/unicode.h"
#include "common/text/utf8.h"

namespace penstock {
namespace {

// Replacements may make a text this much longer, and no more.
constexpr size_t kMaxGrowth = 64;
constexpr size_t kAlwaysAllowedBytes = 1 << 20;

using Kind = NormalizerStep::Kind;

bool IsWhite(char32_t c) { return unicode::Is(c, unicode::kSpace); }

// Maps or drops characters one by one.
template <typename Function>
class CharOp : public NormalizerOp {
 public:
  explicit CharOp(Function function) : function_(std::move(function)) {}
  absl::Status Apply(NormalizedText* text) const override {
    TextBuilder out(*text);
    const std::string_view in = text->text;
    for (size_t pos = 0; pos < in.size();) {
      const size_t from = pos;
      const char32_t c = NextChar(in, &pos);
      function_(c, from, &out);
    }
    out.MoveTo(text);
    return absl::OkStatus();
  }

 private:
  Function function_;
};
template <typename Function>
std::unique_ptr<const NormalizerOp> MakeCharOp(Function function) {
  return std::make_unique<CharOp<Function>>(std::move(function));
}

std::unique_ptr<const NormalizerOp> DropOp(uint32_t flags) {
  return MakeCharOp([flags](char32_t c, size_t from, TextBuilder* out) {
    if (!unicode::Is(c, flags)) out->Put(c, from);
  });
}

class LowercaseOp : public NormalizerOp {
 public:
  absl::Status Apply(NormalizedText* text) const override {
    if (IsAscii(text->text)) {
      for (char& c : text->text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
      return absl::OkStatus();
    }
    TextBuilder out(*text);
    const std::string_view in = text->text;
    for (size_t pos = 0; pos < in.size();) {
      const size_t from = pos;
      const unicode::Lowered lower = unicode::ToLower(NextChar(in, &pos));
      out.Put(lower.first, from);
      if (lower.second != 0) out.Put(lower.second, from);
    }
    out.MoveTo(text);
    return absl::OkStatus();
  }
};

class StripOp : public NormalizerOp {
 public:
  StripOp(bool left, bool right) : left_(left), right_(right) {}
  absl::Status Apply(NormalizedText* text) const override {
    size_t begin = 0, end = text->text.size();
    while (left_ && begin < end) {
      size_t next = begin;
      if (!IsWhite(NextChar(text->text, &next))) break;
      begin = next;
    }
    while (right_ && end > begin) {
      size_t before = end;
      if (!IsWhite(PreviousChar(text->text, &before))) break;
      end = before;
    }
    text->text = text->text.substr(begin, end - begin);
    if (text->track) {
      text->origin.erase(text->origin.begin() + static_cast<ptrdiff_t>(end), text->origin.end());
      text->origin.erase(text->origin.begin(),
                         text->origin.begin() + static_cast<ptrdiff_t>(begin));
    }
    return absl::OkStatus();
  }

 private:
  bool left_, right_;
};

class PrependOp : public NormalizerOp {
 public:
  explicit PrependOp(std::string content) : content_(std::move(content)) {}
  absl::Status Apply(NormalizedText* text) const override {
    if (text->text.empty()) return absl::OkStatus();
    text->text.insert(0, content_);
    if (text->track) {
      const uint32_t first = text->origin.front();
      text->origin.insert(text->origin.begin(), content_.size(), first);
    }
    return absl::OkStatus();
  }

 private:
  std::string content_;
};

class ReplaceOp : public NormalizerOp {
 public:
  ReplaceOp(std::string literal, std::unique_ptr<const Regex> regex, std::string content)
      : literal_(std::move(literal)), regex_(std::move(regex)), content_(std::move(content)) {}
  absl::Status Apply(NormalizedText* text) const override {
    const std::string_view in = text->text;
    TextBuilder out(*text);
    const size_t limit = std::max(kAlwaysAllowedBytes, in.size()) * kMaxGrowth;
    size_t done = 0;
    const auto replace = [&](Span match) -> absl::Status {
      out.Keep(done, match.first);
      done = match.second;
      size_t from = match.second;
      if (match.second > match.first) PreviousChar(in, &from);
      out.PutText(content_, from);
      if (out.size() > limit) return InvalidArgument("a Replace normalizer grows the text too far");
      return absl::OkStatus();
    };
    if (regex_ != nullptr) {
      RETURN_IF_ERROR(regex_->FindAll(in, replace));
    } else {
      size_t at = in.find(literal_);
      if (at == std::string_view::npos) return absl::OkStatus();
      for (; at != std::string_view::npos; at = in.find(literal_, at + literal_.size())) {
        RETURN_IF_ERROR(replace({at, at + literal_.size()}));
      }
    }
    out.Keep(done, in.size());
    out.MoveTo(text);
    return absl::OkStatus();
  }

 private:
  std::string literal_;
  std::unique_ptr<const Regex> regex_;
  std::string content_;
};

// Hugging Face's reading of a charsmap: a grapheme of less than six bytes as a whole (where an
// entry for its beginning already counts), else character by character.
class PrecompiledOp : public NormalizerOp {
 public:
  explicit PrecompiledOp(Charsmap map) : map_(std::move(map)) {}
  absl::Status Apply(NormalizedText* text) const override {
    if (map_.empty()) return absl::OkStatus();
    const std::string_view in = text->text;
    TextBuilder out(*text);
    for (size_t pos = 0; pos < in.size();) {
      const size_t end = ClusterEnd(in, pos);
      if (end - pos < 6 && Put(in.substr(pos, end - pos), pos, &out)) {
        pos = end;
        continue;
      }
      while (pos < end) {
        const size_t n = Utf8Length(in[pos]);
        if (!Put(in.substr(pos, n), pos, &out)) out.Keep(pos, pos + n);
        pos += n;
      }
    }
    out.MoveTo(text);
    return absl::OkStatus();
  }

 private:
  static size_t ClusterEnd(std::string_view in, size_t pos) {
    const auto plain = [&](size_t i) {
      return static_cast<uint8_t>(in[i]) >= 0x20 && static_cast<uint8_t>(in[i]) < 0x7F;
    };
    if (plain(pos) && pos + 1 < in.size() && plain(pos + 1)) return pos + 1;
    return unicode::GraphemeEnd(in, pos);
  }
  bool Put(std::string_view part, size_t from, TextBuilder* out) const {
    const std::optional<Charsmap::Match> match = map_.Find(part, false);
    if (!match.has_value()) return false;
    out->PutText(LossyUtf8(match->replacement), from);
    return true;
  }

  Charsmap map_;
};

bool IsChinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B81F) ||
         (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) ||
         (c >= 0x2F800 && c <= 0x2FA1F);
}

void AddBert(const NormalizerStep& step, std::vector<std::unique_ptr<const NormalizerOp>>* ops) {
  if (step.clean_text) {
    ops->push_back(MakeCharOp([](char32_t c, size_t from, TextBuilder* out) {
      if (c == 0 || unicode::Is(c, unicode::kBertControl)) return;
      out->Put(c == '\t' || c == '\n' || c == '\r' || IsWhite(c) ? U' ' : c, from);
    }));
  }
  if (step.handle_chinese_chars) {
    ops->push_back(MakeCharOp([](char32_t c, size_t from, TextBuilder* out) {
      if (!IsChinese(c)) return out->Put(c, from);
      out->Put(' ', from);
      out->Put(c, from);
      out->Put(' ', from);
    }));
  }
  if (step.strip_accents.value_or(step.lowercase)) {
    ops->push_back(NewNormalFormOp(false, false));
    ops->push_back(DropOp(unicode::kBertMark));
  }
  if (step.lowercase) ops->push_back(std::make_unique<LowercaseOp>());
}

void NmtChar(char32_t c, size_t from, TextBuilder* out) {
  if ((c >= 1 && c <= 8) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F ||
      c == 0x9F) {
    return;
  }
  const bool space = c == 9 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
                     (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                     c == 0xFEFF || c == 0xFFFD;
  out->Put(space ? U' ' : c, from);
}

absl::StatusOr<std::unique_ptr<const NormalizerOp>> NewReplaceOp(const NormalizerStep& step) {
  std::unique_ptr<const Regex> regex;
  if (step.pattern.is_regex || step.pattern.text.empty()) {
    ASSIGN_OR_RETURN(regex, Regex::Create(step.pattern.text));
  }
  return std::make_unique<ReplaceOp>(step.pattern.text, std::move(regex), step.content);
}

}  // namespace

void TextBuilder::PutText(std::string_view text, size_t from) {
  out_ += text;
  if (in_.track) origin_.insert(origin_.end(), text.size(), OriginOf(from));
}
void TextBuilder::Put(char32_t c, size_t from) {
  const size_t before = out_.size();
  AppendChar(&out_, c);
  if (in_.track) origin_.insert(origin_.end(), out_.size() - before, OriginOf(from));
}
void TextBuilder::Keep(size_t begin, size_t end) {
  out_.append(in_.text, begin, end - begin);
  if (!in_.track) return;
  origin_.insert(origin_.end(), in_.origin.begin() + static_cast<ptrdiff_t>(begin),
                 in_.origin.begin() + static_cast<ptrdiff_t>(end));
}
void TextBuilder::MoveTo(NormalizedText* text) {
  text->text = std::move(out_);
  text->origin = std::move(origin_);
}
uint32_t TextBuilder::OriginOf(size_t from) const {
  if (in_.origin.empty()) return 0;
  return from < in_.origin.size() ? in_.origin[from] : in_.origin.back();
}

Normalizer::Normalizer() = default;
Normalizer::Normalizer(Normalizer&&) noexcept = default;
Normalizer& Normalizer::operator=(Normalizer&&) noexcept = default;
Normalizer::~Normalizer() = default;

absl::StatusOr<Normalizer> Normalizer::Create(const std::vector<NormalizerStep>& steps) {
  Normalizer result;
  auto& ops = result.ops_;
  for (const NormalizerStep& step : steps) {
    switch (step.kind) {
      case Kind::kNfc:
        ops.push_back(NewNormalFormOp(true, false));
        break;
      case Kind::kNfc14:
        ops.push_back(NewNormalFormOp(true, false, unicode::Version::k14));
        break;
      case Kind::kNfd:
        ops.push_back(NewNormalFormOp(false, false));
        break;
      case Kind::kNfkc:
        ops.push_back(NewNormalFormOp(true, true));
        break;
      case Kind::kNfkd:
        ops.push_back(NewNormalFormOp(false, true));
        break;
      case Kind::kLowercase:
        ops.push_back(std::make_unique<LowercaseOp>());
        break;
      case Kind::kStrip:
        ops.push_back(std::make_unique<StripOp>(step.strip_left, step.strip_right));
        break;
      case Kind::kStripAccents:
        ops.push_back(DropOp(unicode::kCombiningMark));
        break;
      case Kind::kPrepend:
        ops.push_back(std::make_unique<PrependOp>(step.content));
        continue;
      case Kind::kReplace: {
        ASSIGN_OR_RETURN(auto op, NewReplaceOp(step));
        ops.push_back(std::move(op));
        if (!step.pattern.is_regex && step.content.size() >= step.pattern.text.size()) continue;
        break;
      }
      case Kind::kPrecompiled: {
        ASSIGN_OR_RETURN(Charsmap map, Charsmap::Create(step.charsmap));
        ops.push_back(std::make_unique<PrecompiledOp>(std::move(map)));
        break;
      }
      case Kind::kBert:
        AddBert(step, &ops);
        break;
      case Kind::kNmt:
        ops.push_back(MakeCharOp(NmtChar));
        break;
      case Kind::kByteLevel:
        ops.push_back(MakeCharOp([](char32_t c, size_t from, TextBuilder* out) {
          std::string bytes;
          AppendChar(&bytes, c);
          for (const char b : bytes) {
            out->PutText(ByteAlphabet::Get().CharOf(static_cast<uint8_t>(b)), from);
          }
        }));
        continue;
      case Kind::kSentencePiece: {
        ASSIGN_OR_RETURN(auto op, NewSentencePieceOp(step));
        ops.push_back(std::move(op));
        break;
      }
    }
    result.can_shrink_ = true;
  }
  return result;
}

absl::Status Normalizer::Apply(NormalizedText* text) const {
  if (text->track && text->origin.empty()) {
    text->origin.resize(text->text.size());
    uint32_t at = 0;
    for (size_t i = 0; i < text->text.size(); ++i) {
      if ((static_cast<uint8_t>(text->text[i]) & 0xC0) != 0x80) at = static_cast<uint32_t>(i);
      text->origin[i] = at;
    }
  }
  for (const auto& op : ops_) RETURN_IF_ERROR(op->Apply(text));
  return absl::OkStatus();
}

}  // namespace penstock
