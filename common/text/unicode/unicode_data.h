#pragma once

// Written by generate.py; do not edit. Ranges are pairs (first code point, value), up to
// the next pair's first code point.

#include <cstddef>
#include <cstdint>

namespace penstock::unicode {

enum Flag : uint32_t {
  kLetter = 0x1,
  kNumber = 0x2,
  kMark = 0x4,
  kUpper = 0x8,
  kLower = 0x10,
  kTitle = 0x20,
  kModifierLetter = 0x40,
  kOtherLetter = 0x80,
  kPunctuation = 0x100,
  kSymbol = 0x200,
  kSpace = 0x400,
  kRegexWord = 0x800,
  kRustWord = 0x1000,
  kRustNumeric = 0x2000,
  kBertControl = 0x4000,
  kBertMark = 0x8000,
  kBertPunctuation = 0x10000,
  kCombiningMark = 0x20000,
  kDecimalNumber = 0x40000,
  kHan = 0x80000,
  kPictographic = 0x100000,
};

// Grapheme_Cluster_Break in the low four bits, Indic_Conjunct_Break above them.
enum Break : uint8_t {
  kBreakOther = 0,
  kBreakCR = 1,
  kBreakLF = 2,
  kBreakControl = 3,
  kBreakExtend = 4,
  kBreakZWJ = 5,
  kBreakRegionalIndicator = 6,
  kBreakPrepend = 7,
  kBreakSpacingMark = 8,
  kBreakL = 9,
  kBreakV = 10,
  kBreakT = 11,
  kBreakLV = 12,
  kBreakLVT = 13,
};

extern const uint32_t kFlagRanges[];
extern const size_t kFlagRangesSize;
extern const uint32_t kBreakRanges[];
extern const size_t kBreakRangesSize;
extern const uint32_t kCombiningRanges[];
extern const size_t kCombiningRangesSize;
extern const uint32_t kCombining14Ranges[];
extern const size_t kCombining14RangesSize;
extern const uint32_t kScriptRanges[];
extern const size_t kScriptRangesSize;
extern const uint32_t kLowerMap[];
extern const size_t kLowerMapSize;
extern const uint32_t kCanonical[];
extern const size_t kCanonicalSize;
extern const uint32_t kCompatible[];
extern const size_t kCompatibleSize;
extern const uint32_t kDecompositionPool[];
extern const size_t kDecompositionPoolSize;
extern const uint32_t kCompositions[];
extern const size_t kCompositionsSize;
extern const uint32_t kScriptHan;
extern const uint32_t kScriptHiragana;
extern const uint32_t kScriptKatakana;

}  // namespace penstock::unicode
