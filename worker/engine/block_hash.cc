#include "worker/engine/block_hash.h"

#include <cstring>

#include "common/base/check.h"

namespace penstock {

void BlockHasher::Part(char tag, std::string_view bytes) {
  const uint64_t size = bytes.size();
  stream_.Update(&tag, 1);
  stream_.Update(&size, sizeof(size));
  stream_.Update(bytes.data(), bytes.size());
}

BlockHash BlockHasher::Finish() {
  const Sha256Digest digest = stream_.Finish();
  stream_.Restart();
  BlockHash hash;
  std::memcpy(&hash.high, digest.data(), 8);
  std::memcpy(&hash.low, digest.data() + 8, 8);
  return hash;
}

BlockHash BlockHasher::Root(const CacheIdentity& identity) {
  Part('R', "penstock kv 1");
  Part('M', identity.model_fingerprint);
  Part('S', identity.salt);
  Part('A', identity.adapter_identity);
  return Finish();
}

BlockHash BlockHasher::Next(const BlockHash& parent, std::span<const TokenId> tokens) {
  const struct {
    char tag[8];
    uint64_t high, low, count;
  } head = {{'B', 'l', 'o', 'c', 'k'}, parent.high, parent.low, tokens.size()};
  stream_.Update(&head, sizeof(head));
  stream_.Update(tokens.data(), tokens.size_bytes());
  return Finish();
}

void BlockHasher::Extend(const BlockHash& root, std::span<const TokenId> tokens, int32_t block_size,
                         std::vector<BlockHash>* chain) {
  CHECK(block_size > 0);
  const size_t size = static_cast<size_t>(block_size);
  for (size_t i = chain->size(); (i + 1) * size <= tokens.size(); ++i) {
    const BlockHash& parent = i == 0 ? root : (*chain)[i - 1];
    chain->push_back(Next(parent, tokens.subspan(i * size, size)));
  }
}

}  // namespace penstock
