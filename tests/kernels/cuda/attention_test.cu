// RoPE + KV write, decode and prefill attention against double references over a shuffled paged
// cache.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "kernels/cuda/decode_attention.h"
#include "kernels/cuda/prefill_attention.h"
#include "kernels/cuda/rope_kv.h"
#include "tests/kernels/cuda/gpu_test.h"

namespace penstock::kernels {
namespace {

// Sequences of given lengths over randomly placed blocks of a cache of two layers; layer 1 is used.
struct PagedCase {
  std::vector<int> lengths;  // tokens in the cache
  int num_heads;
  int num_kv_heads;
  int head_dim;
  int block_size;
  int window;
};

class PagedCache {
 public:
  explicit PagedCache(const PagedCase& c) : case_(c) {
    int total = 1;  // block 0 is padding
    for (const int length : c.lengths) {
      const int blocks = (length + c.block_size - 1) / c.block_size;
      max_blocks_ = std::max(max_blocks_, blocks);
      total += blocks;
    }
    std::vector<int32_t> order(total - 1);
    std::iota(order.begin(), order.end(), 1);
    std::shuffle(order.begin(), order.end(), std::mt19937(11));
    size_t next = 0;
    for (const int length : c.lengths) {
      std::vector<int32_t> row(max_blocks_, 0);
      for (int b = 0; b < (length + c.block_size - 1) / c.block_size; ++b) row[b] = order[next++];
      table_.insert(table_.end(), row.begin(), row.end());
    }
    const size_t plane = static_cast<size_t>(c.num_kv_heads) * c.block_size * c.head_dim;
    cache_ = RandomBf16(total * plane * 4, 12);
    layout_ = MakePagedKv(nullptr, 2, 1, c.num_kv_heads, c.block_size, c.head_dim);
  }
  double At(bool v, int seq, int head, int token, int i) const {
    const int32_t block = table_[seq * max_blocks_ + token / case_.block_size];
    const size_t at =
        block * layout_.block_stride + layout_.layer_offset +
        (static_cast<size_t>(head) * case_.block_size + token % case_.block_size) * case_.head_dim +
        i + (v ? layout_.v_offset : 0);
    return ToDouble(cache_[at]);
  }
  const std::vector<__nv_bfloat16>& cache() const { return cache_; }
  const std::vector<int32_t>& table() const { return table_; }
  int max_blocks() const { return max_blocks_; }
  PagedKv Layout(__nv_bfloat16* base) const {
    PagedKv kv = layout_;
    kv.base = base;
    return kv;
  }

 private:
  PagedCase case_;
  int max_blocks_ = 1;
  std::vector<int32_t> table_;
  std::vector<__nv_bfloat16> cache_;
  PagedKv layout_;
};

// Attention of one query at `position` over the cache of sequence `seq`.
std::vector<double> Attend(const PagedCase& c, const PagedCache& cache, int seq, int head,
                           int position, const __nv_bfloat16* q) {
  const int kv_head = head / (c.num_heads / c.num_kv_heads);
  const int begin = c.window > 0 ? std::max(0, position - c.window + 1) : 0;
  std::vector<double> weights;
  double maximum = -1e300;
  for (int t = begin; t <= position; ++t) {
    double score = 0;
    for (int i = 0; i < c.head_dim; ++i)
      score += ToDouble(q[i]) * cache.At(false, seq, kv_head, t, i);
    weights.push_back(score / std::sqrt(static_cast<double>(c.head_dim)));
    maximum = std::max(maximum, weights.back());
  }
  double sum = 0;
  std::vector<double> out(c.head_dim, 0.0);
  for (double& w : weights) sum += w = std::exp(w - maximum);
  for (int t = begin; t <= position; ++t) {
    for (int i = 0; i < c.head_dim; ++i) {
      out[i] += weights[t - begin] / sum * cache.At(true, seq, kv_head, t, i);
    }
  }
  return out;
}

// bf16 probabilities and outputs: two roundings, each of independent errors.
constexpr double kAttentionTolerance = 1.5 * kOneRounding;

class DecodeAttentionTest : public ::testing::TestWithParam<PagedCase> {};

TEST_P(DecodeAttentionTest, MatchesTheReferenceForEverySplit) {
  SKIP_WITHOUT_GPU();
  const PagedCase c = GetParam();
  const PagedCache cache(c);
  const int num_seqs = static_cast<int>(c.lengths.size());
  const auto q = RandomBf16(static_cast<size_t>(num_seqs) * c.num_heads * c.head_dim, 13);
  std::vector<double> expected;
  for (int s = 0; s < num_seqs; ++s) {
    for (int h = 0; h < c.num_heads; ++h) {
      std::vector<double> row(c.head_dim, 0.0);
      if (c.lengths[s] > 0) {
        row = Attend(c, cache, s, h, c.lengths[s] - 1,
                     q.data() + (static_cast<size_t>(s) * c.num_heads + h) * c.head_dim);
      }
      expected.insert(expected.end(), row.begin(), row.end());
    }
  }
  DeviceBuffer<__nv_bfloat16> dq(q);
  DeviceBuffer<__nv_bfloat16> dcache(cache.cache());
  DeviceBuffer<int32_t> table(cache.table());
  DeviceBuffer<int32_t> lengths(std::vector<int32_t>(c.lengths.begin(), c.lengths.end()));
  for (const int splits : {1, 2, 3, 16, 64}) {
    DeviceBuffer<__nv_bfloat16> out(q.size());
    DeviceBuffer<char> workspace(
        DecodeAttentionWorkspaceBytes(num_seqs, c.num_heads, c.head_dim, splits));
    DeviceBuffer<int32_t> counters(static_cast<size_t>(num_seqs) * c.num_kv_heads);
    counters.Zero();
    const DecodeAttentionParams params = {
        .q = dq.data(),
        .kv = cache.Layout(dcache.data()),
        .block_tables = table.data(),
        .seq_lens = lengths.data(),
        .out = out.data(),
        .workspace = workspace.data(),
        .counters = counters.data(),
        .num_seqs = num_seqs,
        .num_heads = c.num_heads,
        .max_blocks_per_seq = cache.max_blocks(),
        .num_splits = splits,
        .window = c.window,
        .scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim))};
    // Twice: the counters must be back at zero after each run.
    RunPlainAndCaptured([&](cudaStream_t stream) { return LaunchDecodeAttention(params, stream); });
    EXPECT_LT(RelativeError(out.Read(), expected), kAttentionTolerance) << splits << " splits";
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, DecodeAttentionTest,
                         ::testing::Values(PagedCase{{1, 16, 17, 1000}, 32, 8, 128, 16, 0},
                                           PagedCase{{0, 333, 64}, 9, 3, 64, 16, 0},
                                           PagedCase{{5, 700}, 16, 1, 128, 32, 0},
                                           PagedCase{{129, 2049}, 8, 8, 96, 64, 0},
                                           PagedCase{{31, 257}, 8, 2, 256, 16, 0},
                                           PagedCase{{10, 100, 900}, 8, 2, 128, 16, 128},
                                           PagedCase{{63, 65}, 4, 2, 64, 16, 1},
                                           PagedCase{{1, 40, 301}, 4, 2, 16, 16, 0},
                                           PagedCase{{17, 300}, 4, 2, 32, 16, 0}));

TEST(DecodeAttention, PlansSplits) {
  EXPECT_EQ(PlanDecodeSplits(1, 8, 64, 132), 1);     // not worth a second block
  EXPECT_EQ(PlanDecodeSplits(1, 8, 1024, 132), 16);  // a chunk per warp
  EXPECT_EQ(PlanDecodeSplits(1, 8, 100'000, 132), 32);
  EXPECT_EQ(PlanDecodeSplits(8, 8, 100'000, 132), 6);  // 384 blocks of 396
  EXPECT_EQ(PlanDecodeSplits(48, 8, 1024, 132), 1);    // the same without splits
  EXPECT_EQ(PlanDecodeSplits(32, 8, 1024, 132), 3);    // 2 waves of a third, not 1 of all
  EXPECT_EQ(PlanDecodeSplits(256, 8, 1024, 132), 3);   // 16 waves of a third, not 6 of all
}

struct PrefillCase {
  PagedCase paged;  // lengths include the new tokens
  std::vector<int> new_tokens;
};

class PrefillAttentionTest : public ::testing::TestWithParam<PrefillCase> {};

TEST_P(PrefillAttentionTest, MatchesTheReference) {
  SKIP_WITHOUT_GPU();
  const auto& [c, new_tokens] = GetParam();
  const PagedCache cache(c);
  std::vector<int32_t> token_begin = {0};
  std::vector<int32_t> start;
  for (size_t s = 0; s < new_tokens.size(); ++s) {
    token_begin.push_back(token_begin.back() + new_tokens[s]);
    start.push_back(c.lengths[s] - new_tokens[s]);
  }
  const auto q = RandomBf16(static_cast<size_t>(token_begin.back()) * c.num_heads * c.head_dim, 14);
  std::vector<double> expected;
  for (size_t s = 0; s < new_tokens.size(); ++s) {
    for (int t = 0; t < new_tokens[s]; ++t) {
      for (int h = 0; h < c.num_heads; ++h) {
        const size_t row = (static_cast<size_t>(token_begin[s]) + t) * c.num_heads + h;
        const auto out =
            Attend(c, cache, static_cast<int>(s), h, start[s] + t, q.data() + row * c.head_dim);
        expected.insert(expected.end(), out.begin(), out.end());
      }
    }
  }
  DeviceBuffer<__nv_bfloat16> dq(q);
  DeviceBuffer<__nv_bfloat16> dcache(cache.cache());
  DeviceBuffer<int32_t> table(cache.table());
  DeviceBuffer<int32_t> begins(token_begin);
  DeviceBuffer<int32_t> starts(start);
  DeviceBuffer<__nv_bfloat16> out(q.size());
  const PrefillAttentionParams params = {
      .q = dq.data(),
      .kv = cache.Layout(dcache.data()),
      .block_tables = table.data(),
      .token_begin = begins.data(),
      .start_pos = starts.data(),
      .out = out.data(),
      .num_seqs = static_cast<int32_t>(new_tokens.size()),
      .max_new_tokens = *std::max_element(new_tokens.begin(), new_tokens.end()),
      .num_heads = c.num_heads,
      .max_blocks_per_seq = cache.max_blocks(),
      .window = c.window,
      .scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim))};
  RunPlainAndCaptured([&](cudaStream_t stream) { return LaunchPrefillAttention(params, stream); });
  EXPECT_LT(RelativeError(out.Read(), expected), kAttentionTolerance);
}

INSTANTIATE_TEST_SUITE_P(Shapes, PrefillAttentionTest,
                         ::testing::Values(PrefillCase{{{1, 70, 300}, 8, 2, 128, 16, 0},
                                                       {1, 70, 100}},
                                           PrefillCase{{{129}, 9, 3, 64, 16, 0}, {129}},
                                           PrefillCase{{{200, 65}, 4, 4, 96, 32, 0}, {64, 65}},
                                           PrefillCase{{{90}, 4, 1, 256, 64, 0}, {33}},
                                           PrefillCase{{{300, 40}, 8, 2, 128, 16, 50}, {140, 40}},
                                           PrefillCase{{{200}, 2, 2, 64, 16, 1}, {150}},
                                           PrefillCase{{{300, 65}, 4, 2, 16, 16, 40}, {250, 65}},
                                           PrefillCase{{{90}, 4, 2, 32, 16, 0}, {33}},
                                           // Enough rows for the large tiles.
                                           PrefillCase{{{1100, 37}, 32, 8, 128, 16, 0}, {1030, 37}},
                                           PrefillCase{{{1200}, 32, 4, 64, 32, 300}, {1100}},
                                           PrefillCase{{{1100}, 32, 8, 96, 16, 0}, {1090}}));

TEST(RopeKv, SplitsNormsRotatesAndWrites) {
  SKIP_WITHOUT_GPU();
  struct Case {
    int heads, kv_heads, dim, rotary, block;
    bool bias, norm;
  };
  for (const Case& c : {Case{32, 8, 128, 128, 16, false, false},
                        Case{9, 3, 64, 64, 16, true, false}, Case{4, 2, 128, 128, 32, false, true},
                        Case{2, 1, 96, 48, 64, true, true}, Case{3, 3, 80, 80, 16, false, false}}) {
    const std::vector<int32_t> positions = {0, 5, 200, 17};
    const std::vector<int64_t> slots = {c.block * 3 + 1, c.block * 2 + 15, -1, c.block * 5};
    const int tokens = static_cast<int>(positions.size());
    const int width = (c.heads + 2 * c.kv_heads) * c.dim;
    const auto qkv = RandomBf16(static_cast<size_t>(tokens) * width, 15);
    const auto bias = RandomBf16(width, 16);
    const auto q_norm = RandomBf16(c.dim, 17);
    const auto k_norm = RandomBf16(c.dim, 18);
    std::vector<float> table(256 * c.rotary);
    for (int p = 0; p < 256; ++p) {
      for (int i = 0; i < c.rotary / 2; ++i) {
        const double angle = p * std::pow(10000.0, -2.0 * i / c.rotary);
        table[p * c.rotary + i] = static_cast<float>(std::cos(angle));
        table[p * c.rotary + c.rotary / 2 + i] = static_cast<float>(std::sin(angle));
      }
    }
    // head: over q, k, v heads
    const auto reference = [&](int token, int head) {
      std::vector<double> row(c.dim);
      double sum = 0;
      for (int i = 0; i < c.dim; ++i) {
        row[i] = ToDouble(qkv[static_cast<size_t>(token) * width + head * c.dim + i]);
        if (c.bias) row[i] += ToDouble(bias[head * c.dim + i]);
        sum += row[i] * row[i];
      }
      if (head >= c.heads + c.kv_heads) return row;
      if (c.norm) {
        const double scale = 1 / std::sqrt(sum / c.dim + 1e-6);
        const auto& weight = head < c.heads ? q_norm : k_norm;
        for (int i = 0; i < c.dim; ++i) row[i] *= scale * ToDouble(weight[i]);
      }
      std::vector<double> out = row;
      const int half = c.rotary / 2;
      for (int i = 0; i < half; ++i) {
        const double angle = positions[token] * std::pow(10000.0, -2.0 * i / c.rotary);
        out[i] = row[i] * std::cos(angle) - row[i + half] * std::sin(angle);
        out[i + half] = row[i + half] * std::cos(angle) + row[i] * std::sin(angle);
      }
      return out;
    };
    DeviceBuffer<__nv_bfloat16> dqkv(qkv);
    DeviceBuffer<__nv_bfloat16> dbias(bias);
    DeviceBuffer<__nv_bfloat16> dqn(q_norm);
    DeviceBuffer<__nv_bfloat16> dkn(k_norm);
    DeviceBuffer<float> dtable(table);
    DeviceBuffer<int32_t> dpositions(positions);
    DeviceBuffer<int64_t> dslots(slots);
    DeviceBuffer<__nv_bfloat16> q_out(static_cast<size_t>(tokens) * c.heads * c.dim);
    const size_t plane = static_cast<size_t>(c.kv_heads) * c.block * c.dim;
    std::vector<__nv_bfloat16> empty(6 * plane * 4, __float2bfloat16(-77.0f));
    DeviceBuffer<__nv_bfloat16> cache(empty);
    const PagedKv kv = MakePagedKv(cache.data(), 2, 1, c.kv_heads, c.block, c.dim);
    const RopeKvParams params = {.qkv = dqkv.data(),
                                 .bias = c.bias ? dbias.data() : nullptr,
                                 .q_norm = c.norm ? dqn.data() : nullptr,
                                 .k_norm = c.norm ? dkn.data() : nullptr,
                                 .cos_sin = dtable.data(),
                                 .positions = dpositions.data(),
                                 .kv_slots = dslots.data(),
                                 .q_out = q_out.data(),
                                 .kv = kv,
                                 .num_tokens = tokens,
                                 .num_heads = c.heads,
                                 .rotary_dim = c.rotary};
    RunPlainAndCaptured([&](cudaStream_t stream) { return LaunchRopeKv(params, stream); });
    std::vector<double> expected_q;
    std::vector<double> expected_kv;
    std::vector<__nv_bfloat16> got_kv;
    const auto host_cache = cache.Read();
    size_t written = 0;
    for (int t = 0; t < tokens; ++t) {
      for (int h = 0; h < c.heads; ++h) {
        const auto row = reference(t, h);
        expected_q.insert(expected_q.end(), row.begin(), row.end());
      }
      for (int h = 0; slots[t] >= 0 && h < 2 * c.kv_heads; ++h) {
        const auto row = reference(t, c.heads + h);
        expected_kv.insert(expected_kv.end(), row.begin(), row.end());
        const size_t at =
            slots[t] / c.block * kv.block_stride + kv.layer_offset +
            (h / c.kv_heads) * kv.v_offset +
            (static_cast<size_t>(h % c.kv_heads) * c.block + slots[t] % c.block) * c.dim;
        got_kv.insert(got_kv.end(), host_cache.begin() + at, host_cache.begin() + at + c.dim);
      }
    }
    for (const __nv_bfloat16 value : host_cache) written += ToDouble(value) != -77.0 ? 1 : 0;
    EXPECT_LT(RelativeError(q_out.Read(), expected_q), kOneRounding);
    EXPECT_LT(RelativeError(got_kv, expected_kv), kOneRounding);
    EXPECT_LE(written, expected_kv.size()) << "wrote elsewhere in the cache";
  }
}

}  // namespace
}  // namespace penstock::kernels
