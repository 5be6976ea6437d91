#include "common/text/bpe_merger.h"

#include <algorithm>
#include <queue>
#include <tuple>

namespace penstock {
namespace {

constexpr size_t kScanSymbols = 128;  // above it the heap is faster

}  // namespace

BpeMerger::BpeMerger(size_t merges) {
  size_t size = 16;
  while (size < merges + merges / 2) size *= 2;
  entries_.resize(size);
  mask_ = size - 1;
}

void BpeMerger::Add(int32_t left, int32_t right, Merge merge) {
  size_t i = Slot(left, right);
  while (entries_[i].left >= 0 && (entries_[i].left != left || entries_[i].right != right)) {
    i = (i + 1) & mask_;
  }
  entries_[i] = {left, right, merge};
}

bool BpeMerger::MakesOneOf(const std::vector<bool>& ids) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.left >= 0 && entry.merge.id >= 0 &&
           static_cast<size_t>(entry.merge.id) < ids.size() && ids[entry.merge.id];
  });
}

BpeMerger::Merge BpeMerger::FindAllowed(int32_t left, int32_t right,
                                        const std::vector<bool>* blocked) const {
  const Merge merge = Find(left, right);
  if (blocked != nullptr && merge.id >= 0 && static_cast<size_t>(merge.id) < blocked->size() &&
      (*blocked)[merge.id]) {
    return {};
  }
  return merge;
}

void BpeMerger::Run(ModelScratch* scratch, const std::vector<bool>* blocked) const {
  if (scratch->symbols.size() < 2) return;
  if (scratch->symbols.size() <= kScanSymbols) {
    Scan(scratch, blocked);
  } else {
    Heap(scratch, blocked);
  }
}

void BpeMerger::Scan(ModelScratch* scratch, const std::vector<bool>* blocked) const {
  std::vector<int32_t>& ids = scratch->symbols;
  int32_t made[kScanSymbols];  // made[i], rank[i]: what ids[i] and ids[i + 1] become
  uint32_t rank[kScanSymbols];
  size_t n = ids.size();
  for (size_t i = 0; i + 1 < n; ++i) {
    const Merge merge = FindAllowed(ids[i], ids[i + 1], blocked);
    rank[i] = merge.rank;
    made[i] = merge.id;
  }
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (rank[i] < rank[best]) best = i;
    }
    if (rank[best] == kNoRank) break;
    ids[best] = made[best];
    --n;
    for (size_t i = best + 1; i < n; ++i) {
      ids[i] = ids[i + 1];
      if (i + 1 < n) {
        rank[i] = rank[i + 1];
        made[i] = made[i + 1];
      }
    }
    if (best + 1 < n) {
      const Merge merge = FindAllowed(ids[best], ids[best + 1], blocked);
      rank[best] = merge.rank;
      made[best] = merge.id;
    }
    if (best > 0) {
      const Merge merge = FindAllowed(ids[best - 1], ids[best], blocked);
      rank[best - 1] = merge.rank;
      made[best - 1] = merge.id;
    }
  }
  ids.resize(n);
}

void BpeMerger::Heap(ModelScratch* scratch, const std::vector<bool>* blocked) const {
  struct Candidate {
    uint32_t rank;
    uint32_t at;
    int32_t left, right;  // the symbols it was made for
    bool operator>(const Candidate& other) const {
      return std::tie(rank, at) > std::tie(other.rank, other.at);
    }
  };
  constexpr uint32_t kEnd = 0xFFFFFFFF;
  std::vector<int32_t>& ids = scratch->symbols;
  const uint32_t n = static_cast<uint32_t>(ids.size());
  std::vector<uint32_t> next(n), previous(n);
  std::vector<Candidate> candidates;
  candidates.reserve(n);
  for (uint32_t i = 0; i < n; ++i) {
    next[i] = i + 1 < n ? i + 1 : kEnd;
    previous[i] = i > 0 ? i - 1 : kEnd;
    if (i + 1 == n) break;
    const Merge merge = FindAllowed(ids[i], ids[i + 1], blocked);
    if (merge.rank != kNoRank) candidates.push_back({merge.rank, i, ids[i], ids[i + 1]});
  }
  std::priority_queue heap(std::greater<Candidate>(), std::move(candidates));
  const auto consider = [&](uint32_t at) {
    const Merge merge = FindAllowed(ids[at], ids[next[at]], blocked);
    if (merge.rank != kNoRank) heap.push({merge.rank, at, ids[at], ids[next[at]]});
  };
  while (!heap.empty()) {
    const Candidate top = heap.top();
    heap.pop();
    const uint32_t right = next[top.at];
    // A symbol that was merged away is -1; one that grew is not what this candidate was made for.
    if (ids[top.at] != top.left || right == kEnd || ids[right] != top.right) continue;
    ids[top.at] = Find(top.left, top.right).id;
    ids[right] = -1;
    next[top.at] = next[right];
    if (next[right] != kEnd) previous[next[right]] = top.at;
    if (next[top.at] != kEnd) consider(top.at);
    if (previous[top.at] != kEnd) consider(previous[top.at]);
  }
  ids.erase(std::remove(ids.begin(), ids.end(), -1), ids.end());
}

}  // namespace penstock
