#include "worker/engine/kv_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

using ::testing::ElementsAre;

std::vector<BlockHash> Chain(int first_token, int num_blocks, int32_t block_size = 4) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < num_blocks * block_size; ++i) tokens.push_back(first_token + i);
  BlockHasher hasher;
  std::vector<BlockHash> chain;
  hasher.Extend(hasher.Root({.model_fingerprint = "m"}), tokens, block_size, &chain);
  return chain;
}

void PublishAll(KvCache* kv, const BlockTable& table, std::span<const BlockHash> chain) {
  for (size_t i = 0; i < chain.size(); ++i) kv->Publish(table, static_cast<int32_t>(i), chain[i]);
}

TEST(BlockHashTest, ChainDependsOnEverythingBeforeIt) {
  const auto a = Chain(1, 3);
  const auto b = Chain(1, 3);
  EXPECT_EQ(a, b);
  BlockHasher hasher;
  std::vector<TokenId> tokens(12);
  for (int i = 0; i < 12; ++i) tokens[static_cast<size_t>(i)] = 1 + i;
  tokens[1] = 99;  // differs in the first block only
  std::vector<BlockHash> c;
  hasher.Extend(hasher.Root({.model_fingerprint = "m"}), tokens, 4, &c);
  for (size_t i = 0; i < 3; ++i) EXPECT_NE(a[i], c[i]);
}

TEST(BlockHashTest, ExtendHashesOnlyNewFullBlocks) {
  BlockHasher hasher;
  const BlockHash root = hasher.Root({.model_fingerprint = "m"});
  const std::vector<TokenId> tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::vector<BlockHash> whole;
  std::vector<BlockHash> grown;
  hasher.Extend(root, tokens, 4, &whole);
  for (size_t n = 0; n <= tokens.size(); ++n) {
    hasher.Extend(root, std::span(tokens).first(n), 4, &grown);
    EXPECT_EQ(grown.size(), n / 4);
  }
  EXPECT_EQ(whole, grown);
}

TEST(BlockHashTest, RootPartsDoNotRunTogether) {
  BlockHasher hasher;
  EXPECT_NE(hasher.Root({.salt = "ab", .adapter_identity = "c"}),
            hasher.Root({.salt = "a", .adapter_identity = "bc"}));
  EXPECT_NE(hasher.Root({.salt = "x"}), hasher.Root({.adapter_identity = "x"}));
  EXPECT_NE(hasher.Root({.model_fingerprint = "x"}), hasher.Root({.salt = "x"}));
}

TEST(KvCacheTest, HandsOutEveryBlockOnceAndNeverTheFirst) {
  KvCache kv({{KvGroupInfo{.num_blocks = 6}}}, 4, 16);
  BlockTable table;
  EXPECT_EQ(kv.num_free(0), 5);
  kv.Grow(5, &table);
  EXPECT_EQ(kv.num_free(0), 0);
  std::vector<int32_t> ids;
  for (const BlockId id : table.blocks[0]) ids.push_back(Value(id));
  EXPECT_THAT(ids, ElementsAre(1, 2, 3, 4, 5));
  const BlockTable* const tables[] = {&table};
  kv.CheckInvariants(tables);
  kv.Release(&table);
  EXPECT_EQ(kv.num_free(0), 5);
  kv.CheckInvariants({});
}

TEST(KvCacheTest, SharedBlocksOutliveTheirFirstOwner) {
  KvCache kv({{KvGroupInfo{.num_blocks = 10}}}, 4, 16);
  const auto chain = Chain(1, 3);
  BlockTable a;
  BlockTable b;
  kv.Grow(3, &a);
  EXPECT_EQ(kv.Lookup(chain, 3).num_blocks, 0) << "not before it is published";
  PublishAll(&kv, a, chain);
  EXPECT_EQ(kv.Lookup(chain, 3).num_blocks, 3);
  EXPECT_EQ(kv.Lookup(chain, 2).num_blocks, 2);
  kv.Attach(chain, 2, &b);
  EXPECT_EQ(kv.Releasable(a, 0), 1);
  kv.Release(&a);
  EXPECT_EQ(kv.num_free(0), 7);
  const PrefixHit hit = kv.Lookup(chain, 3);
  EXPECT_EQ(hit.num_blocks, 3);
  EXPECT_EQ(hit.held[0], 3);
  EXPECT_EQ(hit.idle[0], 1) << "two of the three are still in use";
  kv.Release(&b);
  EXPECT_EQ(kv.num_free(0), 9);
  EXPECT_EQ(kv.Lookup(chain, 3).idle[0], 3);
  kv.CheckInvariants({});
}

TEST(KvCacheTest, GivesUpTheLeastRecentlyUsedChainFromItsEnd) {
  KvCache kv({{KvGroupInfo{.num_blocks = 7}}}, 4, 16);
  const auto old_chain = Chain(1, 3);
  const auto new_chain = Chain(100, 3);
  for (const auto& chain : {old_chain, new_chain}) {
    BlockTable table;
    kv.Grow(3, &table);
    PublishAll(&kv, table, chain);
    kv.Release(&table);
  }
  BlockTable table;
  kv.Grow(1, &table);
  EXPECT_EQ(kv.Lookup(old_chain, 3).num_blocks, 2);
  kv.Grow(2, &table);
  EXPECT_EQ(kv.Lookup(old_chain, 3).num_blocks, 1);
  EXPECT_EQ(kv.Lookup(new_chain, 3).num_blocks, 3);
  kv.Grow(3, &table);
  EXPECT_EQ(kv.Lookup(old_chain, 3).num_blocks, 0);
  EXPECT_EQ(kv.Lookup(new_chain, 3).num_blocks, 3);
  // Use makes a chain recent.
  kv.Release(&table);
  BlockTable user;
  kv.Attach(new_chain, 1, &user);
  kv.Release(&user);
  kv.CheckInvariants({});
}

TEST(KvCacheTest, TheSameContentTwiceIsCachedOnce) {
  KvCache kv({{KvGroupInfo{.num_blocks = 10}}}, 4, 16);
  const auto chain = Chain(1, 2);
  BlockTable a;
  BlockTable b;
  kv.Grow(2, &a);
  kv.Grow(2, &b);
  PublishAll(&kv, a, chain);
  PublishAll(&kv, b, chain);
  EXPECT_EQ(kv.pool(0).cache().num_cached(), 2);
  kv.Release(&b);
  EXPECT_EQ(kv.pool(0).cache().num_idle(), 0) << "the copy is not cached";
  kv.Release(&a);
  EXPECT_EQ(kv.pool(0).cache().num_idle(), 2);
  kv.CheckInvariants({});
}

TEST(KvCacheTest, ForgottenBlocksAreNotFoundButStayInUse) {
  KvCache kv({{KvGroupInfo{.num_blocks = 10}}}, 4, 16);
  const auto chain = Chain(1, 3);
  BlockTable a;
  BlockTable b;
  kv.Grow(3, &a);
  PublishAll(&kv, a, chain);
  kv.Attach(chain, 1, &b);
  kv.Release(&a);  // blocks 1 and 2 are idle, block 0 in use by b
  kv.Forget(chain);
  EXPECT_EQ(kv.Lookup(chain, 3).num_blocks, 0);
  const BlockTable* const tables[] = {&b};
  kv.CheckInvariants(tables);
  kv.Release(&b);
  EXPECT_EQ(kv.pool(0).num_unused(), 9);
  kv.CheckInvariants({});
}

TEST(KvCacheTest, WindowedGroupGivesBackWhatNoTokenReads) {
  const std::vector<KvGroupInfo> groups = {{.window = 0, .num_blocks = 20},
                                           {.window = 6, .num_blocks = 20}};
  KvCache kv(groups, 4, 4);
  BlockTable table;
  kv.Grow(5, &table);
  kv.ReleaseBefore(8, &table);  // reads 3..8: entry 0 stays
  EXPECT_EQ(kv.held(table, 1), 5);
  kv.ReleaseBefore(9, &table);  // reads 4..9
  EXPECT_EQ(kv.held(table, 1), 4);
  EXPECT_EQ(table.blocks[1][0], kPaddingBlock);
  kv.ReleaseBefore(19, &table);  // reads 14..19
  EXPECT_EQ(kv.held(table, 1), 2);
  EXPECT_EQ(kv.held(table, 0), 5);
  EXPECT_EQ(kv.num_free(1), 17);
  const BlockTable* const tables[] = {&table};
  kv.CheckInvariants(tables);
  kv.Release(&table);
  EXPECT_EQ(kv.num_free(1), 19);
}

TEST(KvCacheTest, WindowedGroupNeedsOnlyItsWindowForAHit) {
  const std::vector<KvGroupInfo> groups = {{.window = 0, .num_blocks = 20},
                                           {.window = 6, .num_blocks = 20}};
  KvCache kv(groups, 4, 4);
  const auto chain = Chain(1, 5);
  BlockTable a;
  kv.Grow(5, &a);
  // Only entries 2 and 3 of the window group, and 0..4 of the full one, are published.
  kv.ReleaseBefore(13, &a);  // reads 8..13: entries 0 and 1 go
  for (int32_t i = 0; i < 4; ++i) kv.Publish(a, i, chain[static_cast<size_t>(i)]);
  const PrefixHit hit = kv.Lookup(chain, 5);
  EXPECT_EQ(hit.num_blocks, 4);  // the token at 16 reads 11..16: entries 2 and 3
  EXPECT_EQ(hit.held[0], 4);
  EXPECT_EQ(hit.held[1], 2);
  EXPECT_EQ(kv.Lookup(chain, 3).num_blocks, 0) << "the token at 12 reads 7, in entry 1";
  BlockTable b;
  kv.Attach(chain, 4, &b);
  EXPECT_EQ(kv.held(b, 1), 2);
  const BlockTable* const tables[] = {&a, &b};
  kv.CheckInvariants(tables);
}

TEST(KvCacheTest, PeakOfAWindowedGroupIsBounded) {
  const std::vector<KvGroupInfo> groups = {{.window = 0, .num_blocks = 200},
                                           {.window = 6, .num_blocks = 200}};
  const KvCache kv(groups, 4, 16);
  EXPECT_EQ(kv.PeakBlocks(0, 400), 100);
  EXPECT_EQ(kv.PeakBlocks(1, 400), 7);  // 5 + 16 positions touch at most 7 blocks
  EXPECT_EQ(kv.PeakBlocks(1, 5), 2);
}

}  // namespace
}  // namespace penstock
