#pragma once

// Character properties, case, normal forms and grapheme clusters from the generated tables.
// Everything here is a pure function of read-only data that is expanded once, at first use.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/text/unicode/unicode_data.h"

namespace penstock::unicode {

// One value per code point: blocks of 256, equal blocks stored once.
template <typename T>
class Table {
 public:
  Table(const uint32_t* ranges, size_t size);
  T operator[](char32_t c) const {
    return c < 0x110000 ? values_[size_t{block_[c >> 8]} << 8 | (c & 255)] : T{};
  }

 private:
  std::array<uint16_t, 0x1100> block_;
  std::vector<T> values_;
};

// Bits of enum Flag.
const Table<uint32_t>& FlagTable();
inline bool Is(char32_t c, uint32_t flags) { return (FlagTable()[c] & flags) != 0; }

// The normal forms of Hugging Face's library follow Unicode 9, those of Python 3.11 Unicode 14.
enum class Version { k9, k14 };

uint8_t CombiningClass(char32_t c, Version version);
uint32_t Script(char32_t c);

// Lower case of one character by itself (no context); second is 0 but for U+0130.
struct Lowered {
  char32_t first;
  char32_t second;
};
Lowered ToLower(char32_t c);

// Appends the full decomposition of c (itself when it has none), not reordered.
void Decompose(char32_t c, bool compatible, Version version, std::u32string* out);
// The primary composite of two characters, or 0.
char32_t Compose(char32_t a, char32_t b, Version version);

// Byte offset behind the extended grapheme cluster that begins at pos of valid UTF-8.
size_t GraphemeEnd(std::string_view text, size_t pos);

}  // namespace penstock::unicode
