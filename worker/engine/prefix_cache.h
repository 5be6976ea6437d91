#pragma once

// Which block of one KV group holds which content, and in what order idle ones are given up (least
// recently used first). All storage is taken in the constructor. Engine thread only.

#include <cstdint>
#include <vector>

#include "worker/engine/block_hash.h"
#include "worker/engine/ids.h"

namespace penstock {

class PrefixCache {
 public:
  // Block ids are 0..num_blocks-1.
  explicit PrefixCache(int32_t num_blocks);

  // kPaddingBlock when no block has this content.
  BlockId Find(const BlockHash& hash) const;
  // Names the block's content. False, and nothing changes, when another block has it already.
  bool Insert(BlockId block, const BlockHash& hash);
  // The block's content is no longer found. It must not be idle.
  void Erase(BlockId block);
  bool Has(BlockId block) const { return entry(block).cached; }
  const BlockHash& hash(BlockId block) const { return entry(block).hash; }

  // Idle blocks are cached ones that nobody uses.
  void PushIdle(BlockId block);  // becomes the most recently used
  void RemoveIdle(BlockId block);
  // The least recently used idle block, removed from the list and erased; num_idle() must be > 0.
  BlockId EvictOldest();
  bool IsIdle(BlockId block) const { return entry(block).idle; }
  int32_t num_idle() const { return num_idle_; }
  int32_t num_cached() const { return num_cached_; }

 private:
  struct Entry {
    BlockHash hash;
    int32_t next_in_bucket = kNone;
    int32_t older = kNone;  // idle list
    int32_t newer = kNone;
    bool cached = false;
    bool idle = false;
  };
  static constexpr int32_t kNone = -1;
  Entry& entry(BlockId block) { return entries_[static_cast<size_t>(Value(block))]; }
  const Entry& entry(BlockId block) const { return entries_[static_cast<size_t>(Value(block))]; }
  size_t Bucket(const BlockHash& hash) const { return hash.low & (buckets_.size() - 1); }

  std::vector<Entry> entries_;    // by block id
  std::vector<int32_t> buckets_;  // first entry of each chain; a power of two
  int32_t oldest_ = kNone;
  int32_t newest_ = kNone;
  int32_t num_idle_ = 0;
  int32_t num_cached_ = 0;
};

}  // namespace penstock
