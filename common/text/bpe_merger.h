#pragma once

// Byte-pair merging over symbol ids: of all neighbours that may merge, the pair of the lowest rank
// (and of equal ranks the leftmost) does, until none can. Short words scan an array, long ones keep
// a heap: the same result in n log n. Immutable after the last Add.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/text/token_model.h"

namespace penstock {

class BpeMerger {
 public:
  static constexpr uint32_t kNoRank = 0xFFFFFFFF;
  struct Merge {
    uint32_t rank = kNoRank;
    int32_t id = -1;
  };

  explicit BpeMerger(size_t merges);
  // A pair given twice: the later one counts.
  void Add(int32_t left, int32_t right, Merge merge);
  Merge Find(int32_t left, int32_t right) const {
    for (size_t i = Slot(left, right);; i = (i + 1) & mask_) {
      const Entry& entry = entries_[i];
      if (entry.left == left && entry.right == right) return entry.merge;
      if (entry.left < 0) return {};
    }
  }

  // Merges scratch->symbols in place. blocked (may be null): ids that no merge may make.
  void Run(ModelScratch* scratch, const std::vector<bool>* blocked) const;
  bool MakesOneOf(const std::vector<bool>& ids) const;

 private:
  struct Entry {
    int32_t left = -1;
    int32_t right = -1;
    Merge merge;
  };

  size_t Slot(int32_t left, int32_t right) const {
    const uint64_t key = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
    return (key * 0x9E3779B97F4A7C15u >> 20) & mask_;
  }
  Merge FindAllowed(int32_t left, int32_t right, const std::vector<bool>* blocked) const;
  void Scan(ModelScratch* scratch, const std::vector<bool>* blocked) const;
  void Heap(ModelScratch* scratch, const std::vector<bool>* blocked) const;

  std::vector<Entry> entries_;
  size_t mask_;
};

}  // namespace penstock
