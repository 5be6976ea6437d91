#include "common/text/scanners.h"

#include <cstdint>

#include "common/text/known_patterns.h"
#include "common/text/unicode/unicode.h"
#include "common/text/utf8.h"

namespace penstock {
namespace {

using unicode::kLetter;
using unicode::kLower;
using unicode::kMark;
using unicode::kModifierLetter;
using unicode::kNumber;
using unicode::kOtherLetter;
using unicode::kPunctuation;
using unicode::kSpace;
using unicode::kSymbol;
using unicode::kTitle;
using unicode::kUpper;

constexpr uint32_t kUpperish = kUpper | kTitle | kModifierLetter | kOtherLetter | kMark;
constexpr uint32_t kLowerish = kLower | kModifierLetter | kOtherLetter | kMark;

// A text, a table, and the moves that the patterns are made of.
class View {
 public:
  explicit View(std::string_view text) : text_(text), table_(unicode::FlagTable()) {}

  size_t size() const { return text_.size(); }
  char at(size_t pos) const { return text_[pos]; }
  // Flags of the character at pos; *next is its end.
  uint32_t Flags(size_t pos, size_t* next) const {
    const uint8_t b = static_cast<uint8_t>(text_[pos]);
    if (b < 0x80) {
      *next = pos + 1;
      return table_[b];
    }
    *next = pos;
    return table_[NextChar(text_, next)];
  }
  // End of the run of characters with (or without) one of these flags.
  size_t RunOf(size_t pos, uint32_t flags) const {
    size_t next;
    while (pos < size() && (Flags(pos, &next) & flags) != 0) pos = next;
    return pos;
  }
  size_t RunWithout(size_t pos, uint32_t flags) const {
    size_t next;
    while (pos < size() && (Flags(pos, &next) & flags) == 0) pos = next;
    return pos;
  }
  size_t AtMost(size_t pos, uint32_t flags, int count) const {
    size_t next;
    while (count-- > 0 && pos < size() && (Flags(pos, &next) & flags) != 0) pos = next;
    return pos;
  }
  bool IsNewline(size_t pos) const {
    return pos < size() && (text_[pos] == '\n' || text_[pos] == '\r');
  }

  // 's 't 're 've 'm 'll 'd at pos: its end, or pos. With fold, in any case, U+017F for s too.
  size_t Contraction(size_t pos, bool fold) const {
    if (pos + 1 >= size() || text_[pos] != '\'') return pos;
    const auto letter = [&](size_t i) {
      const char c = i < size() ? text_[i] : '\0';
      return fold && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    };
    const char first = letter(pos + 1), second = letter(pos + 2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return pos + 2;
    if ((first == 'r' || first == 'v') && second == 'e') return pos + 3;
    if (first == 'l' && second == 'l') return pos + 3;
    if (fold && text_.substr(pos + 1, 2) == "\xC5\xBF") return pos + 3;  // U+017F
    return pos;
  }

  // \s+(?!\S)|\s+ at pos, a space: the run, but for its last character when text follows.
  size_t Spaces(size_t pos) const {
    size_t end = pos, last = pos, next;
    while (end < size() && (Flags(end, &next) & kSpace) != 0) {
      last = end;
      end = next;
    }
    return end == size() || last == pos ? end : last;
  }
  // \s*[\r\n]+|\s+(?!\S)|\s+ at pos, a space.
  size_t SpacesOrLines(size_t pos) const {
    size_t end = pos, last = pos, newline = 0, next;
    while (end < size() && (Flags(end, &next) & kSpace) != 0) {
      if (IsNewline(end)) newline = next;
      last = end;
      end = next;
    }
    if (newline > 0) return newline;
    return end == size() || last == pos ? end : last;
  }

 private:
  std::string_view text_;
  const unicode::Table<uint32_t>& table_;
};

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
class Gpt2Scanner : public Scanner {
 public:
  size_t Next(std::string_view text, size_t pos) const override {
    const View view(text);
    const size_t contraction = view.Contraction(pos, false);
    if (contraction > pos) return contraction;
    size_t body = pos, next;
    if (text[pos] == ' ' && pos + 1 < text.size()) ++body;
    const uint32_t flags = view.Flags(body, &next);
    if ((flags & kLetter) != 0) return view.RunOf(next, kLetter);
    if ((flags & kNumber) != 0) return view.RunOf(next, kNumber);
    if ((flags & kSpace) == 0) return view.RunWithout(next, kSpace | kLetter | kNumber);
    return view.Spaces(pos);
  }
};

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
// \s*[\r\n]+|\s+(?!\S)|\s+    where digits says how many numbers go together, and with whole_end
// \s++\z stands before the \s*
class Cl100kScanner : public Scanner {
 public:
  explicit Cl100kScanner(int digits, bool whole_end = false)
      : digits_(digits), whole_end_(whole_end) {}
  size_t Next(std::string_view text, size_t pos) const override {
    const View view(text);
    if (text[pos] == '\'') {
      const size_t contraction = view.Contraction(pos, true);
      if (contraction > pos) return contraction;
    }
    size_t next, after;
    const uint32_t flags = view.Flags(pos, &next);
    if ((flags & kLetter) != 0) return view.RunOf(next, kLetter);
    if ((flags & kNumber) != 0) return view.AtMost(pos, kNumber, digits_);
    const bool more = next < text.size();
    const uint32_t second = more ? view.Flags(next, &after) : 0;
    if (more && !view.IsNewline(pos) && (second & kLetter) != 0) return view.RunOf(after, kLetter);
    size_t body = pos;
    if (text[pos] == ' ' && more && (second & (kSpace | kLetter | kNumber)) == 0) body = next;
    if (body > pos || (flags & kSpace) == 0) {
      size_t end = view.RunWithout(body, kSpace | kLetter | kNumber);
      while (view.IsNewline(end)) ++end;
      return end;
    }
    if (whole_end_ && view.RunOf(pos, kSpace) == text.size()) return text.size();
    return view.SpacesOrLines(pos);
  }

 private:
  int digits_;
  bool whole_end_;
};

// o200k and its relatives: words are cut where lower case meets upper case.
class CasedScanner : public Scanner {
 public:
  CasedScanner(int digits, bool contractions) : digits_(digits), contractions_(contractions) {}
  size_t Next(std::string_view text, size_t pos) const override {
    const View view(text);
    size_t next, after;
    const uint32_t flags = view.Flags(pos, &next);
    const bool can_lead = (flags & (kLetter | kNumber)) == 0 && !view.IsNewline(pos);
    size_t end = 0;
    if (can_lead) end = LowerWord(view, next);
    if (end == 0) end = LowerWord(view, pos);
    if (end == 0 && can_lead) end = UpperWord(view, next);
    if (end == 0) end = UpperWord(view, pos);
    if (end != 0) return contractions_ ? view.Contraction(end, true) : end;
    if ((flags & kNumber) != 0) return view.AtMost(pos, kNumber, digits_);
    size_t body = pos;
    if (text[pos] == ' ' && next < text.size() &&
        (view.Flags(next, &after) & (kSpace | kLetter | kNumber)) == 0) {
      body = next;
    }
    if (body > pos || (flags & kSpace) == 0) {
      end = view.RunWithout(body, kSpace | kLetter | kNumber);
      while (view.IsNewline(end) || (end < text.size() && text[end] == '/')) ++end;
      return end;
    }
    return view.SpacesOrLines(pos);
  }

 private:
  // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+ at pos, or 0.
  static size_t LowerWord(const View& view, size_t pos) {
    size_t end = pos, next, last_both = 0;
    while (end < view.size()) {
      const uint32_t flags = view.Flags(end, &next);
      if ((flags & kUpperish) == 0) break;
      end = next;
      if ((flags & kLowerish) != 0) last_both = end;
    }
    if (end < view.size() && (view.Flags(end, &next) & kLowerish) != 0) {
      return view.RunOf(next, kLowerish);
    }
    return last_both;
  }
  // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]* at pos, or 0.
  static size_t UpperWord(const View& view, size_t pos) {
    const size_t end = view.RunOf(pos, kUpperish);
    return end == pos ? 0 : view.RunOf(end, kLowerish);
  }

  int digits_;
  bool contractions_;
};

// DeepSeek-V3's three steps.
// \p{N}{1,3}
class NumbersScanner : public Scanner {
 public:
  size_t Next(std::string_view text, size_t pos) const override {
    const View view(text);
    const size_t end = view.AtMost(pos, kNumber, 3);
    return end > pos ? end : view.RunWithout(pos, kNumber);
  }
  bool leaves_gaps() const override { return true; }
};

// [一-龥぀-ゟ゠-ヿ]+
class HanKanaScanner : public Scanner {
 public:
  size_t Next(std::string_view text, size_t pos) const override {
    const bool inside = Inside(NextChar(text, &pos));
    while (pos < text.size()) {
      size_t next = pos;
      if (Inside(NextChar(text, &next)) != inside) break;
      pos = next;
    }
    return pos;
  }
  bool leaves_gaps() const override { return true; }

 private:
  static bool Inside(char32_t c) {
    return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF);
  }
};

// [!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|
//  ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
class DeepSeek3Scanner : public Scanner {
 public:
  size_t Next(std::string_view text, size_t pos) const override {
    const View view(text);
    size_t end = Match(view, pos);
    if (end > pos) return end;
    do {
      view.Flags(pos, &pos);
    } while (pos < text.size() && Match(view, pos) == pos);
    return pos;
  }
  bool leaves_gaps() const override { return true; }

 private:
  static bool IsAsciiLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

  // End of the match at pos, or pos.
  static size_t Match(const View& view, size_t pos) {
    constexpr uint32_t kWord = kLetter | kMark, kSign = kPunctuation | kSymbol;
    size_t next, after;
    const uint32_t flags = view.Flags(pos, &next);
    const bool more = next < view.size();
    if ((flags & kSign) != 0) {
      if (next == pos + 1 && static_cast<uint8_t>(view.at(pos)) < 0x80 && more &&
          IsAsciiLetter(view.at(next))) {
        while (next < view.size() && IsAsciiLetter(view.at(next))) ++next;
        return next;
      }
      return Signs(view, next);
    }
    if ((flags & kWord) != 0) return view.RunOf(next, kWord);
    const uint32_t second = more ? view.Flags(next, &after) : 0;
    if ((second & kWord) != 0 && !view.IsNewline(pos)) return view.RunOf(after, kWord);
    if ((second & kSign) != 0 && view.at(pos) == ' ') return Signs(view, after);
    return (flags & kSpace) != 0 ? view.SpacesOrLines(pos) : pos;
  }
  // [\p{P}\p{S}]*[\r\n]* at pos.
  static size_t Signs(const View& view, size_t pos) {
    size_t end = view.RunOf(pos, kPunctuation | kSymbol);
    while (view.IsNewline(end)) ++end;
    return end;
  }
};

struct Known {
  std::string_view pattern;
  const Scanner* scanner;
};

const std::vector<Known>& KnownScanners() {
  static const Cl100kScanner cl100k(3), cl100k_tiktoken(3, true), qwen2(1);
  static const NumbersScanner numbers;
  static const HanKanaScanner han_kana;
  static const DeepSeek3Scanner deepseek3;
  static const CasedScanner o200k(3, true), tekken(1, false);
  static const std::vector<Known> known = {
      {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
       &Scanner::Gpt2()},
      {R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
       &Scanner::Gpt2()},
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       &cl100k},
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       &qwen2},
      {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
       &cl100k},
      {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       &o200k},
      {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       &tekken},
      {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
       &qwen2},
      {kCl100kPattern, &cl100k_tiktoken},
      {R"(\p{N}{1,3})", &numbers},
      {"[一-龥぀-ゟ゠-ヿ]+", &han_kana},
      {kDeepSeek3Pattern, &deepseek3},
  };
  return known;
}

}  // namespace

const Scanner& Scanner::Gpt2() {
  static const Gpt2Scanner scanner;
  return scanner;
}

const Scanner* Scanner::ForPattern(std::string_view pattern) {
  for (const Known& entry : KnownScanners()) {
    if (entry.pattern == pattern) return entry.scanner;
  }
  return nullptr;
}

std::vector<std::string_view> Scanner::KnownPatterns() {
  std::vector<std::string_view> patterns;
  for (const Known& entry : KnownScanners()) patterns.push_back(entry.pattern);
  return patterns;
}

}  // namespace penstock
