// Extended grapheme clusters, UAX #29 of Unicode 16.

#include "common/text/unicode/unicode.h"
#include "common/text/utf8.h"

namespace penstock::unicode {
namespace {

constexpr uint8_t kConjunctConsonant = 1, kConjunctExtend = 2, kConjunctLinker = 3;

const Table<uint8_t>& BreakTable() {
  static const Table<uint8_t> table(kBreakRanges, kBreakRangesSize);
  return table;
}

// What the rules need to know of the cluster so far.
class Cluster {
 public:
  explicit Cluster(char32_t c) { Add(c); }

  bool Continues(char32_t c) const {
    const uint8_t kind = BreakTable()[c] & 15;
    if (last_ == kBreakCR) return kind == kBreakLF;                             // GB3
    if (IsControl(last_) || IsControl(kind) || kind == kBreakCR) return false;  // GB4, GB5
    if (last_ == kBreakL &&
        (kind == kBreakL || kind == kBreakV || kind == kBreakLV || kind == kBreakLVT)) {
      return true;  // GB6
    }
    if ((last_ == kBreakLV || last_ == kBreakV) && (kind == kBreakV || kind == kBreakT)) {
      return true;  // GB7
    }
    if ((last_ == kBreakLVT || last_ == kBreakT) && kind == kBreakT) return true;             // GB8
    if (kind == kBreakExtend || kind == kBreakZWJ || kind == kBreakSpacingMark) return true;  // 9
    if (last_ == kBreakPrepend) return true;                                              // GB9b
    if (conjunct_ && linker_ && BreakTable()[c] >> 4 == kConjunctConsonant) return true;  // GB9c
    if (last_ == kBreakZWJ && pictographic_ && Is(c, kPictographic)) return true;         // GB11
    return last_ == kBreakRegionalIndicator && kind == kBreakRegionalIndicator &&
           regional_ % 2 == 1;  // GB12, GB13
  }

  void Add(char32_t c) {
    const uint8_t value = BreakTable()[c];
    last_ = value & 15;
    const uint8_t conjunct = value >> 4;
    if (conjunct == kConjunctConsonant) {
      conjunct_ = true;
      linker_ = false;
    } else if (conjunct == kConjunctLinker) {
      linker_ = true;
    } else if (conjunct != kConjunctExtend) {
      conjunct_ = false;
    }
    if (Is(c, kPictographic)) {
      pictographic_ = true;
    } else if (last_ != kBreakExtend && last_ != kBreakZWJ) {
      pictographic_ = false;
    }
    regional_ = last_ == kBreakRegionalIndicator ? regional_ + 1 : 0;
  }

 private:
  static bool IsControl(uint8_t kind) {
    return kind == kBreakControl || kind == kBreakCR || kind == kBreakLF;
  }

  uint8_t last_ = kBreakOther;
  bool pictographic_ = false;  // ExtPict Extend* (ZWJ) so far
  bool conjunct_ = false;      // Consonant (Extend | Linker)* so far ...
  bool linker_ = false;        // ... with at least one Linker
  int regional_ = 0;
};

}  // namespace

size_t GraphemeEnd(std::string_view text, size_t pos) {
  Cluster cluster(NextChar(text, &pos));
  while (pos < text.size()) {
    size_t next = pos;
    const char32_t c = NextChar(text, &next);
    if (!cluster.Continues(c)) break;
    cluster.Add(c);
    pos = next;
  }
  return pos;
}

}  // namespace penstock::unicode
