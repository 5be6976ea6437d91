#pragma once

// Remembers what short words became. Fixed in size: a word may stand in either place of its bucket,
// and a new one takes that of the older. Not thread-safe: every encoding thread holds one of its
// own meanwhile.

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
    const Key key(word);
    const Slot* slot = Bucket(key);
    if (!slot->Holds(key, word) && !(++slot)->Holds(key, word)) return false;
    if (slot->count == 1) {  // nearly all
      out->push_back(slot->ids[0]);
    } else {
      out->insert(out->end(), slot->ids, slot->ids + slot->count);
    }
    return true;
  }
  void Store(std::string_view word, const int32_t* ids, size_t count) {
    if (word.size() > kMaxBytes || word.empty() || count > kMaxIds) return;
    const Key key(word);
    Slot* slot = Bucket(key);
    slot[1] = slot[0];
    slot->first = key.first;
    slot->last = key.last;
    slot->size = static_cast<uint8_t>(word.size());
    slot->count = static_cast<uint8_t>(count);
    if (word.size() > 16) std::memcpy(slot->middle, word.data() + 8, word.size() - 16);
    if (count > 0) std::memcpy(slot->ids, ids, count * sizeof(int32_t));
  }

 private:
  static constexpr int kBits = 14;  // buckets of two

  // The first and the last eight bytes, which may overlap: with the size they are the whole word up
  // to 16 bytes. Shorter than eight: the whole word alone.
  struct Key {
    explicit Key(std::string_view word) {
      const char* data = word.data();
      const size_t n = word.size();
      if (n >= 8) {
        std::memcpy(&first, data, 8);
        std::memcpy(&last, data + n - 8, 8);
      } else if (n >= 4) {
        uint32_t a, b;
        std::memcpy(&a, data, 4);
        std::memcpy(&b, data + n - 4, 4);
        first = uint64_t{a} | uint64_t{b} << 32;
      } else {
        first = uint64_t{static_cast<uint8_t>(data[0])} |
                uint64_t{static_cast<uint8_t>(data[n / 2])} << 8 |
                uint64_t{static_cast<uint8_t>(data[n - 1])} << 16;
      }
      hash = (first ^ n) * 0x9FB21C651E98DF25u;
      hash = (hash ^ hash >> 32 ^ last) * 0x9E3779B97F4A7C15u;
    }
    uint64_t first, last = 0, hash;
  };

  struct alignas(64) Slot {
    bool Holds(const Key& key, std::string_view word) const {
      return first == key.first && last == key.last && size == word.size() &&
             (size <= 16 || std::memcmp(middle, word.data() + 8, size - 16u) == 0);
    }
    uint64_t first = 0, last = 0;
    int32_t ids[kMaxIds];
    uint8_t size = 0;
    uint8_t count = 0;
    char middle[kMaxBytes - 16];
  };

  Slot* Bucket(const Key& key) {
    if (slots_ == nullptr) slots_ = std::make_unique<Slot[]>(size_t{2} << kBits);
    return &slots_[(key.hash >> (64 - kBits)) * 2];
  }

  std::unique_ptr<Slot[]> slots_;
};

}  // namespace penstock
