#include "worker/engine/kv_cache.h"

#include <algorithm>

#include "common/base/check.h"

namespace penstock {

BlockPool::BlockPool(int32_t num_blocks)
    : refs_(static_cast<size_t>(num_blocks), 0), cache_(num_blocks) {
  CHECK(num_blocks >= 2);
  unused_.reserve(static_cast<size_t>(num_blocks));
  for (int32_t i = num_blocks - 1; i > 0; --i) unused_.push_back(BlockId{i});
}

BlockId BlockPool::Allocate() {
  BlockId block;
  if (!unused_.empty()) {
    block = unused_.back();
    unused_.pop_back();
  } else {
    block = cache_.EvictOldest();
  }
  int32_t& refs = refs_[static_cast<size_t>(Value(block))];
  CHECK(refs == 0);
  refs = 1;
  return block;
}

void BlockPool::Ref(BlockId block) {
  CHECK(cache_.Has(block));
  if (refs_[static_cast<size_t>(Value(block))]++ == 0) cache_.RemoveIdle(block);
}

void BlockPool::Unref(BlockId block) {
  int32_t& refs = refs_[static_cast<size_t>(Value(block))];
  CHECK(refs > 0);
  if (--refs > 0) return;
  if (cache_.Has(block)) {
    cache_.PushIdle(block);
  } else {
    unused_.push_back(block);
  }
}

void BlockPool::Publish(BlockId block, const BlockHash& hash) {
  CHECK(refs(block) > 0);
  if (!cache_.Has(block)) (void)cache_.Insert(block, hash);
}

void BlockPool::Forget(const BlockHash& hash) {
  const BlockId block = cache_.Find(hash);
  if (block == kPaddingBlock) return;
  const bool idle = cache_.IsIdle(block);
  if (idle) cache_.RemoveIdle(block);
  cache_.Erase(block);
  if (idle) unused_.push_back(block);
}

KvCache::KvCache(std::span<const KvGroupInfo> groups, int32_t block_size, int32_t max_tokens_ahead)
    : block_size_(block_size), max_tokens_ahead_(max_tokens_ahead) {
  CHECK(!groups.empty() && groups.size() <= kMaxKvGroups);
  CHECK(block_size > 0);
  for (const KvGroupInfo& group : groups) {
    windows_.push_back(group.window);
    has_windows_ |= group.window != 0;
    pools_.emplace_back(group.num_blocks);
  }
}

int32_t KvCache::PeakBlocks(int group, int32_t tokens) const {
  const int32_t window = windows_[static_cast<size_t>(group)];
  if (window == 0) return BlocksFor(tokens);
  return std::min(BlocksFor(tokens), BlocksFor(window - 1 + max_tokens_ahead_) + 1);
}

int32_t KvCache::held(const BlockTable& table, int group) const {
  return table.size() - table.first_held[static_cast<size_t>(group)];
}

int32_t KvCache::Releasable(const BlockTable& table, int group) const {
  const auto& blocks = table.blocks[static_cast<size_t>(group)];
  int32_t count = 0;
  for (size_t i = static_cast<size_t>(table.first_held[static_cast<size_t>(group)]);
       i < blocks.size(); ++i) {
    if (pool(group).refs(blocks[i]) == 1) ++count;
  }
  return count;
}

int32_t KvCache::FirstNeeded(int group, int32_t position) const {
  const int32_t window = windows_[static_cast<size_t>(group)];
  if (window == 0) return 0;
  return std::max(0, position - window + 1) / block_size_;
}

PrefixHit KvCache::Lookup(std::span<const BlockHash> chain, int32_t max_blocks) const {
  int32_t limit = std::min(max_blocks, static_cast<int32_t>(chain.size()));
  const auto cached = [&](int group, int32_t i) {
    return pool(group).cache().Find(chain[static_cast<size_t>(i)]) != kPaddingBlock;
  };
  for (int g = 0; g < num_groups(); ++g) {
    if (windows_[static_cast<size_t>(g)] != 0) continue;
    int32_t found = 0;
    while (found < limit && cached(g, found)) ++found;
    limit = found;
  }
  // Shorten until every windowed group has the blocks that the next token would read.
  for (bool again = true; again && limit > 0;) {
    again = false;
    for (int g = 0; g < num_groups() && !again; ++g) {
      if (windows_[static_cast<size_t>(g)] == 0) continue;
      for (int32_t i = limit - 1; i >= FirstNeeded(g, limit * block_size_); --i) {
        if (cached(g, i)) continue;
        limit = i;  // no prefix that needs block i can be used
        again = true;
        break;
      }
    }
  }
  PrefixHit hit;
  hit.num_blocks = limit;
  for (int g = 0; g < num_groups() && limit > 0; ++g) {
    for (int32_t i = FirstNeeded(g, limit * block_size_); i < limit; ++i) {
      const BlockId block = pool(g).cache().Find(chain[static_cast<size_t>(i)]);
      ++hit.held[static_cast<size_t>(g)];
      if (pool(g).cache().IsIdle(block)) ++hit.idle[static_cast<size_t>(g)];
    }
  }
  return hit;
}

void KvCache::Attach(std::span<const BlockHash> chain, int32_t num_blocks, BlockTable* table) {
  CHECK(table->size() == 0);
  for (size_t g = 0; g < pools_.size(); ++g) {
    const int32_t first = FirstNeeded(static_cast<int>(g), num_blocks * block_size_);
    table->first_held[g] = first;
    table->blocks[g].assign(static_cast<size_t>(first), kPaddingBlock);
    for (int32_t i = first; i < num_blocks; ++i) {
      const BlockId block = pools_[g].cache().Find(chain[static_cast<size_t>(i)]);
      CHECK(block != kPaddingBlock);
      pools_[g].Ref(block);
      table->blocks[g].push_back(block);
    }
  }
}

void KvCache::Grow(int32_t num_blocks, BlockTable* table) {
  for (size_t g = 0; g < pools_.size(); ++g) {
    while (static_cast<int32_t>(table->blocks[g].size()) < num_blocks) {
      table->blocks[g].push_back(pools_[g].Allocate());
    }
  }
}

void KvCache::Publish(const BlockTable& table, int32_t index, const BlockHash& hash) {
  for (size_t g = 0; g < pools_.size(); ++g) {
    if (index < table.first_held[g]) continue;
    pools_[g].Publish(table.blocks[g][static_cast<size_t>(index)], hash);
  }
}

void KvCache::Forget(std::span<const BlockHash> chain) {
  for (BlockPool& pool : pools_) {
    for (const BlockHash& hash : chain) pool.Forget(hash);
  }
}

void KvCache::ReleaseBefore(int32_t position, BlockTable* table) {
  for (size_t g = 0; g < pools_.size(); ++g) {
    if (windows_[g] == 0) continue;
    const int32_t needed = std::min(FirstNeeded(static_cast<int>(g), position), table->size());
    for (int32_t i = table->first_held[g]; i < needed; ++i) {
      BlockId& block = table->blocks[g][static_cast<size_t>(i)];
      pools_[g].Unref(block);
      block = kPaddingBlock;
    }
    table->first_held[g] = std::max(table->first_held[g], needed);
  }
}

void KvCache::Release(BlockTable* table) {
  for (size_t g = 0; g < pools_.size(); ++g) {
    auto& blocks = table->blocks[g];
    // Last block first, so that a chain's end is given up before its beginning.
    for (size_t i = blocks.size(); i > static_cast<size_t>(table->first_held[g]); --i) {
      pools_[g].Unref(blocks[i - 1]);
    }
    blocks.clear();
    table->first_held[g] = 0;
  }
}

void KvCache::CheckInvariants(std::span<const BlockTable* const> tables) const {
  for (size_t g = 0; g < pools_.size(); ++g) {
    const BlockPool& p = pools_[g];
    std::vector<int32_t> refs(static_cast<size_t>(p.num_blocks()) + 1, 0);
    for (const BlockTable* table : tables) {
      CHECK(table->blocks[g].size() == table->blocks[0].size());
      for (size_t i = 0; i < table->blocks[g].size(); ++i) {
        const BlockId block = table->blocks[g][i];
        CHECK((block == kPaddingBlock) == (static_cast<int32_t>(i) < table->first_held[g]));
        if (block != kPaddingBlock) ++refs[static_cast<size_t>(Value(block))];
      }
    }
    int32_t in_use = 0;
    int32_t cached = 0;
    for (int32_t i = 1; i <= p.num_blocks(); ++i) {
      const BlockId block{i};
      CHECK(p.refs(block) == refs[static_cast<size_t>(i)]);
      CHECK(p.cache().IsIdle(block) == (p.cache().Has(block) && p.refs(block) == 0));
      if (p.cache().Has(block)) {
        CHECK(p.cache().Find(p.cache().hash(block)) == block);
        ++cached;
      }
      if (p.refs(block) > 0) ++in_use;
    }
    CHECK(cached == p.cache().num_cached());
    CHECK(in_use + p.num_free() == p.num_blocks());
  }
}

}  // namespace penstock
