#pragma once

// What Python's str methods know about each character (tables of unicode_tables.cc).

#include <cstddef>
#include <cstdint>

namespace penstock::jinja {

enum UnicodeFlag : uint16_t {
  kAlpha = 1 << 0,
  kNumeric = 1 << 1,
  kDigit = 1 << 2,
  kDecimal = 1 << 3,
  kSpace = 1 << 4,
  kUpper = 1 << 5,
  kLower = 1 << 6,
  kTitle = 1 << 7,
  kPrintable = 1 << 8,
  kIdStart = 1 << 9,
  kIdContinue = 1 << 10,
  kCased = 1 << 11,
  kCaseIgnorable = 1 << 12,  // and not cased: what a final sigma looks through
  kWord = 1 << 13,           // \w of Python's re
};
inline constexpr uint16_t kAlnum = kAlpha | kNumeric | kDigit | kDecimal;

struct UnicodeRange {
  uint32_t begin;  // up to the next range's begin
  uint16_t flags;
};
struct CaseMapping {
  uint32_t code;
  uint16_t offset;  // into the pool, UTF-8
  uint8_t size;
};
struct CaseMap {
  const CaseMapping* entries;  // ascending
  size_t num_entries;
  const unsigned char* pool;
};

extern const UnicodeRange kUnicodeRanges[];
extern const size_t kNumUnicodeRanges;
extern const CaseMap kUpperMap, kLowerMap, kTitleMap, kFoldMap;

}  // namespace penstock::jinja
