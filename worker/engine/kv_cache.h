#pragma once

// KV blocks as ids and reference counts; the memory itself is the runner's. One pool per KV group.
// Engine thread only; no locks.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "worker/engine/block_hash.h"
#include "worker/engine/ids.h"
#include "worker/engine/model_runner.h"
#include "worker/engine/prefix_cache.h"

namespace penstock {

inline constexpr int kMaxKvGroups = 8;
// One number per KV group.
using PerGroup = std::array<int32_t, kMaxKvGroups>;

// The blocks of one group. Block 0 is never handed out.
class BlockPool {
 public:
  explicit BlockPool(int32_t num_blocks);

  // Blocks that Allocate can hand out: unused ones, then idle cached ones.
  int32_t num_free() const { return num_unused() + cache_.num_idle(); }
  int32_t num_unused() const { return static_cast<int32_t>(unused_.size()); }
  int32_t num_blocks() const { return static_cast<int32_t>(refs_.size()) - 1; }
  int32_t refs(BlockId block) const { return refs_[static_cast<size_t>(Value(block))]; }
  const PrefixCache& cache() const { return cache_; }

  // num_free() must be > 0. The block's old content, if it was cached, is forgotten.
  BlockId Allocate();
  void Ref(BlockId block);    // a cached block, idle or in use
  void Unref(BlockId block);  // at zero it becomes idle when cached, else unused
  // The block's content is complete: later requests may find it.
  void Publish(BlockId block, const BlockHash& hash);
  // Nobody finds this content any more; whoever uses the block goes on.
  void Forget(const BlockHash& hash);

 private:
  std::vector<int32_t> refs_;    // by block id
  std::vector<BlockId> unused_;  // not cached, no refs; a stack
  PrefixCache cache_;
};

// One sequence's blocks. Entry i of a group is for positions [i * block_size, (i + 1) *
// block_size); entries before first_held are kPaddingBlock (out of the window). All groups have
// equally many.
struct BlockTable {
  PerGroup first_held = {};
  std::array<std::vector<BlockId>, kMaxKvGroups> blocks;
  int32_t size() const { return static_cast<int32_t>(blocks[0].size()); }
};

// The longest cached prefix of a chain.
struct PrefixHit {
  int32_t num_blocks = 0;
  PerGroup held = {};  // of these, how many the sequence would use (the window's)
  PerGroup idle = {};  // of those, how many are idle now, so count as free
};

class KvCache {
 public:
  // max_tokens_ahead: how far positions can grow before Collect frees what left the window
  // (the prefill chunk times the steps in flight).
  KvCache(std::span<const KvGroupInfo> groups, int32_t block_size, int32_t max_tokens_ahead);

  int num_groups() const { return static_cast<int>(pools_.size()); }
  bool has_windows() const { return has_windows_; }
  int32_t block_size() const { return block_size_; }
  const BlockPool& pool(int group) const { return pools_[static_cast<size_t>(group)]; }
  int32_t num_free(int group) const { return pool(group).num_free(); }
  int32_t BlocksFor(int32_t tokens) const { return (tokens + block_size_ - 1) / block_size_; }
  // The most blocks of a group that a sequence of so many tokens uses at once.
  int32_t PeakBlocks(int group, int32_t tokens) const;
  int32_t held(const BlockTable& table, int group) const;
  // Blocks that Release would make free.
  int32_t Releasable(const BlockTable& table, int group) const;

  // The longest prefix of at most max_blocks whose content is cached. In a group with a window only
  // the window's blocks must be there.
  PrefixHit Lookup(std::span<const BlockHash> chain, int32_t max_blocks) const;
  // Makes the first num_blocks of the chain (a hit) the empty table's beginning.
  void Attach(std::span<const BlockHash> chain, int32_t num_blocks, BlockTable* table);
  // Appends fresh blocks until the table has num_blocks entries. They must be free.
  void Grow(int32_t num_blocks, BlockTable* table);
  // Entry `index` is completely written: its content can be found from now on.
  void Publish(const BlockTable& table, int32_t index, const BlockHash& hash);
  void Forget(std::span<const BlockHash> chain);
  // Gives up what the window of the token at `position` and later ones no longer reaches.
  void ReleaseBefore(int32_t position, BlockTable* table);
  void Release(BlockTable* table);

  // Dies when counts, lists and these tables (all there are) disagree. For tests.
  void CheckInvariants(std::span<const BlockTable* const> tables) const;

 private:
  // First entry that the token at `position` reads.
  int32_t FirstNeeded(int group, int32_t position) const;

  const int32_t block_size_;
  const int32_t max_tokens_ahead_;
  std::vector<int32_t> windows_;
  bool has_windows_ = false;
  std::vector<BlockPool> pools_;
};

}  // namespace penstock
