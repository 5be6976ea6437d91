#include "common/text/unicode/unicode.h"

#include <algorithm>
#include <map>

namespace penstock::unicode {
namespace {

constexpr char32_t kHangulBase = 0xAC00, kLBase = 0x1100, kVBase = 0x1161, kTBase = 0x11A7;
constexpr char32_t kLCount = 19, kVCount = 21, kTCount = 28, kHangulCount = 11172;

// The one character with a canonical decomposition that came after Unicode 9 and until 14.
constexpr char32_t kComposite13 = 0x11938, kComposite13First = 0x11935,
                   kComposite13Second = 0x11930;

const Table<uint8_t>& CombiningTable(Version version) {
  static const Table<uint8_t> table9(kCombiningRanges, kCombiningRangesSize);
  static const Table<uint8_t> table14(kCombining14Ranges, kCombining14RangesSize);
  return version == Version::k9 ? table9 : table14;
}
const Table<uint8_t>& ScriptTable() {
  static const Table<uint8_t> table(kScriptRanges, kScriptRangesSize);
  return table;
}

// Sorted records of `width` numbers, found by their first one.
const uint32_t* FindRecord(const uint32_t* records, size_t size, size_t width, uint32_t key) {
  size_t low = 0, high = size / width;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (records[middle * width] < key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low * width < size && records[low * width] == key ? records + low * width : nullptr;
}

}  // namespace

template <typename T>
Table<T>::Table(const uint32_t* ranges, size_t size) {
  std::map<std::u32string, uint16_t> seen;
  std::u32string block(256, 0);
  size_t range = 0;
  for (uint32_t b = 0; b < 0x1100; ++b) {
    for (uint32_t i = 0; i < 256; ++i) {
      while (range + 2 < size && ranges[range + 2] <= (b << 8 | i)) range += 2;
      block[i] = ranges[range + 1];
    }
    const auto [it, fresh] = seen.try_emplace(block, static_cast<uint16_t>(values_.size() / 256));
    for (size_t i = 0; fresh && i < block.size(); ++i) values_.push_back(static_cast<T>(block[i]));
    block_[b] = it->second;
  }
}

template class Table<uint32_t>;
template class Table<uint8_t>;

const Table<uint32_t>& FlagTable() {
  static const Table<uint32_t> table(kFlagRanges, kFlagRangesSize);
  return table;
}
uint8_t CombiningClass(char32_t c, Version version) {
  return c < 0x300 ? 0 : CombiningTable(version)[c];
}
uint32_t Script(char32_t c) { return ScriptTable()[c]; }

Lowered ToLower(char32_t c) {
  if (c < 0x80) return {c >= 'A' && c <= 'Z' ? c + 32 : c, 0};
  const uint32_t* record = FindRecord(kLowerMap, kLowerMapSize, 3, c);
  return record == nullptr ? Lowered{c, 0} : Lowered{record[1], record[2]};
}

void Decompose(char32_t c, bool compatible, Version version, std::u32string* out) {
  if (c < 0xA0) {
    out->push_back(c);
    return;
  }
  if (c >= kHangulBase && c < kHangulBase + kHangulCount) {
    const char32_t s = c - kHangulBase;
    out->push_back(kLBase + s / (kVCount * kTCount));
    out->push_back(kVBase + s % (kVCount * kTCount) / kTCount);
    if (s % kTCount != 0) out->push_back(kTBase + s % kTCount);
    return;
  }
  if (c == kComposite13 && version != Version::k9) {
    *out += {kComposite13First, kComposite13Second};
    return;
  }
  const uint32_t* record = compatible ? FindRecord(kCompatible, kCompatibleSize, 2, c) : nullptr;
  if (record == nullptr) record = FindRecord(kCanonical, kCanonicalSize, 2, c);
  if (record == nullptr) {
    out->push_back(c);
    return;
  }
  const uint32_t* text = kDecompositionPool + (record[1] >> 8);
  out->append(text, text + (record[1] & 255));
}

char32_t Compose(char32_t a, char32_t b, Version version) {
  if (a == kComposite13First && b == kComposite13Second) {
    return version == Version::k9 ? 0 : kComposite13;
  }
  if (a >= kLBase && a < kLBase + kLCount && b >= kVBase && b < kVBase + kVCount) {
    return kHangulBase + ((a - kLBase) * kVCount + (b - kVBase)) * kTCount;
  }
  if (a >= kHangulBase && a < kHangulBase + kHangulCount && (a - kHangulBase) % kTCount == 0 &&
      b > kTBase && b < kTBase + kTCount) {
    return a + (b - kTBase);
  }
  const uint32_t* record = FindRecord(kCompositions, kCompositionsSize, 3, a);
  if (record == nullptr) return 0;
  const uint32_t* end = kCompositions + kCompositionsSize;
  for (; record != end && record[0] == a; record += 3) {
    if (record[1] == b) return record[2];
  }
  return 0;
}

}  // namespace penstock::unicode
