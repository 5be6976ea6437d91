#pragma once

// A template's string: UTF-8 bytes and which of them came from the user. Python's string methods
// work on it and carry the marks along.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock::jinja {

// Half-open byte ranges, ascending, neither empty nor touching.
using Marks = std::vector<std::pair<size_t, size_t>>;

struct Text {
  std::string bytes;
  Marks marks;
  bool safe = false;  // Python's Markup

  Text() = default;
  explicit Text(std::string plain) : bytes(std::move(plain)) {}
  static Text FromUser(std::string bytes);
  bool empty() const { return bytes.empty(); }
};

// Appends pieces; keeps marks in order and merged.
class TextBuilder {
 public:
  void Append(std::string_view plain) { out_.bytes += plain; }
  void Append(std::string_view bytes, bool user);
  void Append(const Text& text) { AppendSlice(text, 0, text.bytes.size()); }
  void AppendSlice(const Text& text, size_t begin, size_t end);
  size_t size() const { return out_.bytes.size(); }
  Text Finish() { return std::move(out_); }

 private:
  void Mark(size_t begin, size_t end);
  Text out_;
};

Text Slice(const Text& text, size_t begin, size_t end);  // bytes
Text Concat(const Text& a, const Text& b);
// Marked all over when any of from is (for results whose bytes cannot be traced).
Text WithMarksOf(std::string bytes, const Text& from);

// --- Characters ---

struct Char {
  char32_t code;
  size_t size;  // bytes
};
Char CharAt(std::string_view text, size_t pos);      // pos < size; a stray byte is one character
Char CharBefore(std::string_view text, size_t pos);  // pos > 0
void AppendUtf8(std::string* out, char32_t code);
uint16_t FlagsOf(char32_t code);  // UnicodeFlag bits
inline bool IsAscii(std::string_view s) {
  for (const char c : s) {
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  }
  return true;
}
size_t CountChars(std::string_view text);
// Byte offset of character number index (size() when beyond).
size_t ByteOffset(std::string_view text, size_t index);

// --- Python's str ---

bool IsSpace(char32_t code);
bool IsLineBreak(char32_t code);
Text Strip(const Text& text, bool left, bool right);
Text StripChars(const Text& text, std::string_view chars, bool left, bool right);
Text Upper(const Text& text);
Text Lower(const Text& text);
Text Title(const Text& text);
Text Capitalize(const Text& text);
Text SwapCase(const Text& text);
Text CaseFold(const Text& text);
Text Replace(const Text& text, const Text& from, const Text& to, int64_t count);
std::vector<Text> SplitWhitespace(const Text& text, int64_t max, bool from_right);
std::vector<Text> Split(const Text& text, std::string_view separator, int64_t max, bool from_right);
std::vector<Text> SplitLines(const Text& text, bool keep_ends);
Text Join(const Text& separator, const std::vector<Text>& parts);
Text Repeat(const Text& text, int64_t times);
Text ExpandTabs(const Text& text, int64_t size);
Text EscapeHtml(const Text& text);
// True when not empty and every character has one of flags.
bool AllHave(std::string_view text, uint16_t flags);
bool IsUpperText(std::string_view text);
bool IsLowerText(std::string_view text);
bool IsTitleText(std::string_view text);
bool IsIdentifier(std::string_view text);

}  // namespace penstock::jinja
