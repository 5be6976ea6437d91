#pragma once

// Remembers what short words became. Fixed in size: a new word takes the place of an old one with
// the same slot. Not thread-safe: every encoding thread holds one of its own meanwhile.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

namespace penstock {

class WordCache {
 public:
  static constexpr size_t kMaxBytes = 31;
  static constexpr size_t kMaxIds = 7;

  // Appends the ids of word and returns true, or false when it is not known.
  bool Lookup(std::string_view word, std::vector<int32_t>* out) {
    if (word.size() > kMaxBytes || word.empty()) return false;
    const Slot& slot = slots()[Hash(word)];
    if (slot.size != word.size() || std::memcmp(slot.word, word.data(), word.size()) != 0) {
      return false;
    }
    out->insert(out->end(), slot.ids, slot.ids + slot.count);
    return true;
  }
  void Store(std::string_view word, const int32_t* ids, size_t count) {
    if (word.size() > kMaxBytes || word.empty() || count > kMaxIds) return;
    Slot& slot = slots()[Hash(word)];
    slot.size = static_cast<uint8_t>(word.size());
    std::memcpy(slot.word, word.data(), word.size());
    slot.count = static_cast<uint8_t>(count);
    if (count > 0) std::memcpy(slot.ids, ids, count * sizeof(int32_t));
  }

 private:
  static constexpr int kBits = 15;
  struct alignas(64) Slot {
    uint8_t size = 0;
    char word[kMaxBytes];
    int32_t ids[kMaxIds];
    uint8_t count = 0;
  };

  Slot* slots() {
    if (slots_ == nullptr) slots_ = std::make_unique<Slot[]>(size_t{1} << kBits);
    return slots_.get();
  }
  static size_t Hash(std::string_view word) {
    uint64_t a = 0, b = 0;
    const size_t n = word.size();
    uint64_t hash = n * 0x9E3779B97F4A7C15u;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
      std::memcpy(&a, word.data() + i, 8);
      hash = (hash ^ a) * 0x9FB21C651E98DF25u;
      hash ^= hash >> 32;
    }
    if (i < n) {
      std::memcpy(&b, word.data() + i, n - i);
      hash = (hash ^ b) * 0x9FB21C651E98DF25u;
      hash ^= hash >> 32;
    }
    return (hash * 0x9E3779B97F4A7C15u) >> (64 - kBits);
  }

  std::unique_ptr<Slot[]> slots_;
};

}  // namespace penstock
