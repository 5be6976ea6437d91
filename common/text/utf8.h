#pragma once

// UTF-8, as the tokenizers need it. "Valid" is what Unicode says: no surrogates, no overlong forms.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// Bytes of the character that begins with this byte of valid text.
inline size_t Utf8Length(char lead) {
  const uint8_t b = static_cast<uint8_t>(lead);
  return b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}

// The character at pos of valid text; pos moves behind it.
inline char32_t NextChar(std::string_view text, size_t* pos) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(text[*pos + i]); };
  const uint8_t b = at(0);
  char32_t c = b;
  size_t n = 1;
  if (b >= 0xF0) {
    c = (b & 7u) << 18 | (at(1) & 63u) << 12 | (at(2) & 63u) << 6 | (at(3) & 63u);
    n = 4;
  } else if (b >= 0xE0) {
    c = (b & 15u) << 12 | (at(1) & 63u) << 6 | (at(2) & 63u);
    n = 3;
  } else if (b >= 0x80) {
    c = (b & 31u) << 6 | (at(1) & 63u);
    n = 2;
  }
  *pos += n;
  return c;
}

// The character before pos (> 0) of valid text; pos moves to its first byte.
inline char32_t PreviousChar(std::string_view text, size_t* pos) {
  size_t p = *pos - 1;
  while (p > 0 && (static_cast<uint8_t>(text[p]) & 0xC0) == 0x80) --p;
  *pos = p;
  return NextChar(text, &p);
}

void AppendChar(std::string* out, char32_t c);

bool IsAscii(std::string_view text);
// Bytes of the valid character at pos, or 0. *broken then has the length of the longest piece that
// one U+FFFD replaces (at least 1).
size_t ValidCharAt(std::string_view bytes, size_t pos, size_t* broken);
bool IsValidUtf8(std::string_view bytes);
// Every maximal broken piece becomes one U+FFFD (as Rust, Python and the WHATWG do it).
std::string LossyUtf8(std::string_view bytes);
void AppendLossyUtf8(std::string* out, std::string_view bytes);
// Every broken byte becomes one U+FFFD (as sentencepiece does it).
void AppendLossyBytes(std::string* out, std::string_view bytes);
// Whether the lossy text of bytes ends in U+FFFD; looks at the last four bytes only.
bool LossyEndsInReplacement(std::string_view bytes);

}  // namespace penstock
