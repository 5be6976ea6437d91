// NFC, NFD, NFKC and NFKD, segment by segment. A segment begins at a character that
// nothing before it can combine with.

#include <algorithm>
#include <bitset>

#include "common/text/normalizer_op.h"
#include "common/text/unicode/unicode.h"
#include "common/text/utf8.h"

namespace penstock {
namespace {

class NormalFormOp : public NormalizerOp {
 public:
  NormalFormOp(bool compose, bool compatible, unicode::Version version)
      : compose_(compose), compatible_(compatible), version_(version) {
    for (size_t i = 1; i < unicode::kCompositionsSize; i += 3) {
      const char32_t second = unicode::kCompositions[i];
      if (Class(second) == 0) joining_.push_back(second);
    }
    if (version_ != unicode::Version::k9) joining_.push_back(0x11930);
    for (char32_t c = 0x1161; c < 0x1176; ++c) joining_.push_back(c);  // Hangul vowels
    for (char32_t c = 0x11A8; c < 0x11C3; ++c) joining_.push_back(c);  // and finals
    std::sort(joining_.begin(), joining_.end());
    FindInert();
  }

  absl::Status Apply(NormalizedText* text) const override {
    if (IsAscii(text->text)) return absl::OkStatus();
    const std::string_view in = text->text;
    TextBuilder out(*text);
    std::u32string segment;
    size_t segment_from = 0;
    for (size_t pos = 0; pos < in.size();) {
      size_t next;
      if (IsInert(in, pos, &next)) {
        Flush(&segment, segment_from, &out);
        const size_t end = InertEnd(in, pos, next);
        out.Keep(pos, end);
        pos = end;
        if (pos == in.size()) break;
      }
      const size_t from = pos;
      const size_t before = segment.size();
      unicode::Decompose(NextChar(in, &pos), compatible_, version_, &segment);
      if (before == 0) {
        segment_from = from;
      } else if (Class(segment[before]) == 0 && !JoinsLeft(segment[before])) {
        std::u32string rest = segment.substr(before);
        segment.resize(before);
        Flush(&segment, segment_from, &out);
        segment = std::move(rest);
        segment_from = from;
      }
    }
    Flush(&segment, segment_from, &out);
    out.MoveTo(text);
    return absl::OkStatus();
  }

 private:
  // A character that joins nothing before it and, before another such one, is its own form.
  void FindInert() {
    std::u32string form;
    for (char32_t c = 0; c < kInertLimit; ++c) {
      if (c >= 0xD800 && c <= 0xDFFF) continue;
      form.clear();
      unicode::Decompose(c, compatible_, version_, &form);
      if (Class(form[0]) != 0 || JoinsLeft(form[0])) continue;
      if (form.size() > 1) {
        Reorder(&form);
        if (compose_) Compose(&form);
      }
      inert_[c] = form.size() == 1 && form[0] == c;
    }
  }
  bool IsInert(std::string_view text, size_t pos, size_t* next) const {
    if ((text[pos] & 0x80) == 0) {
      *next = pos + 1;
      return true;
    }
    *next = pos;
    const char32_t c = NextChar(text, next);
    return c < kInertLimit && inert_[c];
  }
  // How far from pos, an inert character up to next, everything is its own form.
  size_t InertEnd(std::string_view text, size_t pos, size_t next) const {
    for (size_t after; next < text.size() && IsInert(text, next, &after); next = after) pos = next;
    return next == text.size() ? next : pos;
  }

  uint8_t Class(char32_t c) const { return unicode::CombiningClass(c, version_); }
  // Starters that compose with what stands before them (only when composing).
  bool JoinsLeft(char32_t c) const {
    return compose_ && c >= 0x900 && std::binary_search(joining_.begin(), joining_.end(), c);
  }

  void Flush(std::u32string* segment, size_t from, TextBuilder* out) const {
    if (segment->empty()) return;
    Reorder(segment);
    if (compose_) Compose(segment);
    for (const char32_t c : *segment) out->Put(c, from);
    segment->clear();
  }

  void Reorder(std::u32string* s) const {
    for (size_t i = 0; i < s->size();) {
      if (Class((*s)[i]) == 0) {
        ++i;
        continue;
      }
      size_t end = i;
      while (end < s->size() && Class((*s)[end]) != 0) ++end;
      std::stable_sort(s->begin() + static_cast<ptrdiff_t>(i),
                       s->begin() + static_cast<ptrdiff_t>(end),
                       [&](char32_t a, char32_t b) { return Class(a) < Class(b); });
      i = end;
    }
  }

  void Compose(std::u32string* s) const {
    size_t starter = std::u32string::npos;
    int last_class = -1;  // of what was kept since the starter; -1: nothing
    size_t kept = 0;
    for (const char32_t c : std::u32string(*s)) {
      const int combining = Class(c);
      if (starter != std::u32string::npos && last_class < combining) {
        const char32_t composite = unicode::Compose((*s)[starter], c, version_);
        if (composite != 0) {
          (*s)[starter] = composite;
          continue;
        }
      }
      if (combining == 0) {
        starter = kept;
        last_class = -1;
      } else {
        last_class = combining;
      }
      (*s)[kept++] = c;
    }
    s->resize(kept);
  }

  static constexpr char32_t kInertLimit = 0x10000;

  bool compose_, compatible_;
  unicode::Version version_;
  std::bitset<kInertLimit> inert_;
  std::vector<char32_t> joining_;
};

}  // namespace

std::unique_ptr<const NormalizerOp> NewNormalFormOp(bool compose, bool compatible,
                                                    unicode::Version version) {
  return std::make_unique<NormalFormOp>(compose, compatible, version);
}

}  // namespace penstock
