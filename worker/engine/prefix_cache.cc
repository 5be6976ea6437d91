#include "worker/engine/prefix_cache.h"

#include <bit>

#include "common/base/check.h"

namespace penstock {

PrefixCache::PrefixCache(int32_t num_blocks)
    : entries_(static_cast<size_t>(num_blocks)),
      buckets_(std::bit_ceil(static_cast<size_t>(num_blocks)), kNone) {}

BlockId PrefixCache::Find(const BlockHash& hash) const {
  for (int32_t i = buckets_[Bucket(hash)]; i != kNone;
       i = entries_[static_cast<size_t>(i)].next_in_bucket) {
    if (entries_[static_cast<size_t>(i)].hash == hash) return BlockId{i};
  }
  return kPaddingBlock;
}

bool PrefixCache::Insert(BlockId block, const BlockHash& hash) {
  CHECK(!Has(block));
  if (Find(hash) != kPaddingBlock) return false;
  Entry& e = entry(block);
  int32_t& head = buckets_[Bucket(hash)];
  e.hash = hash;
  e.cached = true;
  e.next_in_bucket = head;
  head = Value(block);
  ++num_cached_;
  return true;
}

void PrefixCache::Erase(BlockId block) {
  Entry& e = entry(block);
  CHECK(e.cached && !e.idle);
  int32_t* link = &buckets_[Bucket(e.hash)];
  while (*link != Value(block)) {
    CHECK(*link != kNone);
    link = &entries_[static_cast<size_t>(*link)].next_in_bucket;
  }
  *link = e.next_in_bucket;
  e.cached = false;
  --num_cached_;
}

void PrefixCache::PushIdle(BlockId block) {
  Entry& e = entry(block);
  CHECK(e.cached && !e.idle);
  e.idle = true;
  e.older = newest_;
  e.newer = kNone;
  (newest_ == kNone ? oldest_ : entries_[static_cast<size_t>(newest_)].newer) = Value(block);
  newest_ = Value(block);
  ++num_idle_;
}

void PrefixCache::RemoveIdle(BlockId block) {
  Entry& e = entry(block);
  CHECK(e.idle);
  (e.older == kNone ? oldest_ : entries_[static_cast<size_t>(e.older)].newer) = e.newer;
  (e.newer == kNone ? newest_ : entries_[static_cast<size_t>(e.newer)].older) = e.older;
  e.idle = false;
  --num_idle_;
}

BlockId PrefixCache::EvictOldest() {
  CHECK(oldest_ != kNone);
  const BlockId block{oldest_};
  RemoveIdle(block);
  Erase(block);
  return block;
}

}  // namespace penstock
