#pragma once

// The identity of a full KV block: a chained SHA-256, cut to 128 bits, over everything that decides
// the block's content: the model, the tenant's salt, the adapter's weights, and all tokens up to
// the block's end. A short hash could be forged, and a forged one would read another tenant's
// blocks.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/sha256.h"
#include "worker/engine/ids.h"

namespace penstock {

struct BlockHash {
  uint64_t high = 0;
  uint64_t low = 0;
  friend bool operator==(const BlockHash&, const BlockHash&) = default;
};

// What separates one prefix cache from another. Parts are hashed with a tag and their length, so
// that no two different identities run together.
struct CacheIdentity {
  std::string_view model_fingerprint;
  std::string_view salt;              // empty = the cache all share
  std::string_view adapter_identity;  // a digest of its weights, never its name; empty = base model
};

// Reusable; one thread at a time.
class BlockHasher {
 public:
  BlockHash Root(const CacheIdentity& identity);
  // The block of `tokens` that follows `parent`.
  BlockHash Next(const BlockHash& parent, std::span<const TokenId> tokens);
  // Appends to *chain the hashes of tokens' full blocks that it does not have yet.
  void Extend(const BlockHash& root, std::span<const TokenId> tokens, int32_t block_size,
              std::vector<BlockHash>* chain);

 private:
  void Part(char tag, std::string_view bytes);
  BlockHash Finish();

  Sha256Stream stream_;
};

}  // namespace penstock
