// The sampling kernel: greedy, penalties, masks, logprobs, and a chi-square test of seeded draws
// against the exact probabilities with every filter.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "kernels/cuda/philox.cuh"
#include "kernels/cuda/sample.h"
#include "tests/kernels/cuda/gpu_test.h"

namespace penstock::kernels {
namespace {

// One slot, the same logits in every row, output indices 0..rows-1.
struct SampleResult {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> nonfinite;
  std::vector<int32_t> logprob_ids;
  std::vector<float> logprobs;
  std::vector<int32_t> ranks;
};

struct Extras {
  std::vector<uint16_t> counts;  // of slot 1
  std::vector<std::pair<int32_t, float>> bias;
  std::vector<uint32_t> mask;
};

SampleResult Sampled(const std::vector<float>& logits, SamplingSlot slot, int rows,
                     Extras extras = {}) {
  const int vocab = static_cast<int>(logits.size());
  std::vector<float> all;
  for (int r = 0; r < rows; ++r) all.insert(all.end(), logits.begin(), logits.end());
  std::vector<int32_t> bias_ids;
  std::vector<float> bias_values;
  for (const auto& [id, value] : extras.bias) {
    bias_ids.push_back(id);
    bias_values.push_back(value);
  }
  slot.bias_end = static_cast<int32_t>(bias_ids.size());
  std::vector<uint16_t> counts(2 * vocab, 0);
  if (!extras.counts.empty()) {
    slot.use_counts = 1;
    std::copy(extras.counts.begin(), extras.counts.end(), counts.begin() + vocab);
  }
  std::vector<int32_t> indices(rows);
  std::iota(indices.begin(), indices.end(), 0);
  DeviceBuffer<float> dlogits(all);
  DeviceBuffer<SamplingSlot> slots(std::vector<SamplingSlot>{SamplingSlot(), slot});
  DeviceBuffer<int32_t> row_slots(std::vector<int32_t>(rows, 1));
  DeviceBuffer<int32_t> dindices(indices);
  DeviceBuffer<uint16_t> dcounts(counts);
  DeviceBuffer<int32_t> dbias_ids(bias_ids);
  DeviceBuffer<float> dbias_values(bias_values);
  DeviceBuffer<uint32_t> masks(extras.mask);
  DeviceBuffer<int32_t> row_masks(std::vector<int32_t>(rows, extras.mask.empty() ? -1 : 0));
  DeviceBuffer<float> scratch(all.size());
  DeviceBuffer<int32_t> tokens(rows);
  DeviceBuffer<int32_t> last(2);
  DeviceBuffer<uint8_t> nonfinite(rows);
  const size_t logprob_size = static_cast<size_t>(rows) * (kMaxTopLogprobs + 1);
  DeviceBuffer<int32_t> logprob_ids(logprob_size);
  DeviceBuffer<float> logprobs(logprob_size);
  DeviceBuffer<int32_t> ranks(rows);
  const SampleParams params = {
      .logits = dlogits.data(),
      .slots = slots.data(),
      .row_slots = row_slots.data(),
      .output_indices = dindices.data(),
      // Rows of one slot would race for its counts: only single rows have them.
      .counts = rows == 1 ? dcounts.data() : nullptr,
      .bias_ids = dbias_ids.data(),
      .bias_values = dbias_values.data(),
      .masks = masks.data(),
      .row_masks = row_masks.data(),
      .scratch = scratch.data(),
      .tokens = tokens.data(),
      .last_tokens = last.data(),
      .nonfinite = nonfinite.data(),
      .logprob_ids = logprob_ids.data(),
      .logprobs = logprobs.data(),
      .sampled_ranks = ranks.data(),
      .num_rows = rows,
      .vocab_size = vocab};
  EXPECT_CUDA_OK(LaunchSample(params, nullptr));
  return {tokens.Read(), nonfinite.Read(), logprob_ids.Read(), logprobs.Read(), ranks.Read()};
}

std::vector<float> RandomLogits(int vocab, uint32_t seed, float scale) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> logits(vocab);
  for (float& value : logits) value = normal(engine);
  return logits;
}

// Exact probabilities after min-p, top-k and top-p, in double.
std::vector<double> Exact(const std::vector<float>& logits, const SamplingSlot& slot) {
  std::vector<int> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  std::vector<double> p(logits.size());
  const double top = logits[order[0]];
  for (size_t i = 0; i < p.size(); ++i) p[i] = std::exp((logits[i] - top) / slot.temperature);
  std::vector<double> kept(p.size(), 0.0);
  double total = 0;
  size_t count = 0;
  for (const int id : order) {
    if (p[id] < slot.min_p) break;
    if (slot.top_k > 0 && count == static_cast<size_t>(slot.top_k)) break;
    total += p[id];
    ++count;
  }
  double mass = 0;
  for (size_t i = 0; i < count; ++i) {
    kept[order[i]] = p[order[i]];
    mass += p[order[i]];
    if (mass >= slot.top_p * total) break;
  }
  for (double& value : kept) value /= mass;
  return kept;
}

TEST(Sample, GreedyTakesTheSmallestIdOfEqualBests) {
  SKIP_WITHOUT_GPU();
  std::vector<float> logits = RandomLogits(50000, 1, 2.0f);
  logits[777] = logits[40000] = 30.0f;
  for (const int32_t token : Sampled(logits, {.temperature = 0.0f}, 5).tokens)
    EXPECT_EQ(token, 777);
  for (const int32_t token : Sampled(logits, {.top_p = 0.0f}, 5).tokens) EXPECT_EQ(token, 777);
  for (const int32_t token : Sampled(logits, {.top_k = 1}, 5).tokens) EXPECT_EQ(token, 777);
}

TEST(Sample, DrawsFollowTheExactDistribution) {
  SKIP_WITHOUT_GPU();
  constexpr int kDraws = 20000;
  const SamplingSlot cases[] = {
      {.temperature = 1.0f, .seed = 1},
      {.temperature = 0.7f, .top_k = 5, .seed = 2},
      {.temperature = 1.3f, .top_p = 0.8f, .seed = 3},
      {.temperature = 1.0f, .min_p = 0.1f, .seed = 4},
      {.temperature = 0.9f, .top_p = 0.9f, .min_p = 0.02f, .top_k = 20, .choice = 3, .seed = 5},
      {.temperature = 2.0f, .top_p = 0.999f, .top_k = 1000, .seed = 6},
  };
  for (const int vocab : {37, 1501}) {
    const std::vector<float> logits = RandomLogits(vocab, vocab, 2.0f);
    for (const SamplingSlot& slot : cases) {
      const std::vector<double> exact = Exact(logits, slot);
      std::vector<int> seen(vocab, 0);
      for (const int32_t token : Sampled(logits, slot, kDraws).tokens) ++seen[token];
      double chi_square = 0;
      double rest_expected = 0;  // cells too small for the test are pooled
      int rest_seen = 0;
      int cells = 0;
      for (int i = 0; i < vocab; ++i) {
        if (exact[i] == 0) {
          ASSERT_EQ(seen[i], 0) << "token " << i << " was filtered out, seed " << slot.seed;
        }
        if (exact[i] * kDraws < 10) {
          rest_expected += exact[i] * kDraws;
          rest_seen += seen[i];
          continue;
        }
        const double difference = seen[i] - exact[i] * kDraws;
        chi_square += difference * difference / (exact[i] * kDraws);
        ++cells;
      }
      if (rest_expected >= 10) {
        chi_square += (rest_seen - rest_expected) * (rest_seen - rest_expected) / rest_expected;
        ++cells;
      }
      // Mean cells - 1, variance 2 (cells - 1): five sigmas, and the seeds are fixed.
      const double freedom = cells - 1;
      EXPECT_LT(chi_square, freedom + 5 * std::sqrt(2 * freedom) + 1)
          << "vocab " << vocab << " seed " << slot.seed;
    }
  }
}

// Too many tokens matter to gather them: limits are found over the whole row.
TEST(Sample, FlatRowsKeepTheirLimits) {
  SKIP_WITHOUT_GPU();
  const std::vector<float> logits = RandomLogits(30'000, 12, 0.3f);
  for (const SamplingSlot& slot :
       {SamplingSlot{.top_k = 3000, .seed = 1}, SamplingSlot{.top_p = 0.3f, .seed = 2},
        SamplingSlot{.top_p = 0.5f, .top_k = 9000, .seed = 3}}) {
    const std::vector<double> exact = Exact(logits, slot);
    const size_t support = exact.size() - std::count(exact.begin(), exact.end(), 0.0);
    std::map<int32_t, int> seen;
    for (const int32_t token : Sampled(logits, slot, 1500).tokens) {
      ++seen[token];
      EXPECT_GT(exact[token], 0) << "token " << token << " was filtered out, seed " << slot.seed;
    }
    // 1500 draws from thousands of nearly equal tokens hit mostly different ones.
    EXPECT_GT(support, 2500u);
    EXPECT_GT(seen.size(), 1000u) << "seed " << slot.seed;
  }
}

TEST(Sample, ADrawDependsOnSeedChoiceAndIndexOnly) {
  SKIP_WITHOUT_GPU();
  const std::vector<float> logits = RandomLogits(1000, 9, 1.0f);
  const auto a = Sampled(logits, {.seed = 42}, 64).tokens;
  EXPECT_EQ(a, Sampled(logits, {.seed = 42}, 64).tokens);
  EXPECT_NE(a, Sampled(logits, {.seed = 43}, 64).tokens);
  EXPECT_NE(a, Sampled(logits, {.choice = 1, .seed = 42}, 64).tokens);
  // Fewer neighbours change nothing.
  const auto few = Sampled(logits, {.seed = 42}, 3).tokens;
  EXPECT_TRUE(std::equal(few.begin(), few.end(), a.begin()));
}

TEST(Sample, PenaltiesBiasAndMask) {
  SKIP_WITHOUT_GPU();
  std::vector<float> logits(100, 0.0f);
  logits[10] = 5.0f;
  logits[20] = 4.9f;
  logits[30] = 4.0f;
  const SamplingSlot greedy = {.temperature = 0.0f};
  Extras extras;
  extras.counts.assign(100, 0);
  extras.counts[10] = 2;          // generated twice
  extras.counts[20] = kInPrompt;  // in the prompt only
  SamplingSlot slot = greedy;
  slot.frequency_penalty = 0.1f;  // 5.0 - 0.2 < 4.9: the prompt's token is not touched
  EXPECT_EQ(Sampled(logits, slot, 1, extras).tokens[0], 20);
  slot = greedy;
  slot.presence_penalty = 0.05f;
  EXPECT_EQ(Sampled(logits, slot, 1, extras).tokens[0], 10);
  slot = greedy;
  slot.repetition_penalty = 1.3f;  // 5/1.3 and 4.9/1.3 < 4
  EXPECT_EQ(Sampled(logits, slot, 1, extras).tokens[0], 30);
  Extras bias;
  bias.bias = {{10, -100.0f}, {77, 4.95f}};
  EXPECT_EQ(Sampled(logits, greedy, 2, bias).tokens[1], 77);
  Extras both;
  both.counts.assign(100, 0);
  both.counts[10] = 1;
  both.counts[20] = 1;
  both.bias = {{10, 0.6f}, {77, 4.2f}};  // bias first: 5.6 / 1.3 = 4.31, not 5 / 1.3 + 0.6
  slot = greedy;
  slot.repetition_penalty = 1.3f;
  EXPECT_EQ(Sampled(logits, slot, 1, both).tokens[0], 10);
  both.bias[1].second = 4.4f;
  EXPECT_EQ(Sampled(logits, slot, 1, both).tokens[0], 77);
  Extras mask;
  mask.mask.assign(4, 0);
  mask.mask[30 / 32] |= 1u << (30 % 32);
  mask.mask[40 / 32] |= 1u << (40 % 32);
  EXPECT_EQ(Sampled(logits, greedy, 1, mask).tokens[0], 30);
  for (const int32_t token : Sampled(logits, {.temperature = 2.0f, .seed = 8}, 50, mask).tokens) {
    EXPECT_TRUE(token == 30 || token == 40);
  }
}

TEST(Sample, LogprobsAreOfTheRawLogits) {
  SKIP_WITHOUT_GPU();
  const std::vector<float> logits = RandomLogits(5000, 10, 3.0f);
  const SampleResult result =
      Sampled(logits, {.temperature = 0.5f, .num_logprobs = 20, .seed = 7}, 4);
  double sum = 0;
  for (const float value : logits) sum += std::exp(static_cast<double>(value));
  std::vector<int> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  for (int row = 0; row < 4; ++row) {
    const int base = row * (kMaxTopLogprobs + 1);
    EXPECT_EQ(result.logprob_ids[base], result.tokens[row]);
    const auto rank = std::find(order.begin(), order.end(), result.tokens[row]) - order.begin() + 1;
    EXPECT_EQ(result.ranks[row], rank);
    for (int n = 0; n <= kMaxTopLogprobs; ++n) {
      const int id = result.logprob_ids[base + n];
      if (n > 0) {
        EXPECT_EQ(id, order[n - 1]);
      }
      EXPECT_NEAR(result.logprobs[base + n], logits[id] - std::log(sum), 1e-4);
    }
  }
}

TEST(Sample, NonfiniteLogitsAreFlagged) {
  SKIP_WITHOUT_GPU();
  for (const float bad : {NAN, INFINITY}) {
    std::vector<float> logits = RandomLogits(300, 11, 1.0f);
    logits[17] = bad;
    const SampleResult result = Sampled(logits, {.seed = 1}, 2);
    EXPECT_EQ(result.nonfinite, (std::vector<uint8_t>{1, 1}));
  }
  std::vector<float> some_impossible = RandomLogits(300, 11, 1.0f);
  some_impossible[17] = -INFINITY;
  EXPECT_EQ(Sampled(some_impossible, {.seed = 1}, 1).nonfinite[0], 0);
}

TEST(Philox, KnownAnswers) {
  // From the authors' test vectors: counter and key all zeros, and all ones.
  const PhiloxNumbers zeros = Philox(0, 0, 0, 0, 0);
  EXPECT_EQ(zeros.x[0], 0x6627e8d5u);
  EXPECT_EQ(zeros.x[1], 0xe169c58du);
  EXPECT_EQ(zeros.x[2], 0xbc57ac4cu);
  EXPECT_EQ(zeros.x[3], 0x9b00dbd8u);
  const PhiloxNumbers ones = Philox(~0u, ~0u, ~0u, ~0u, ~0ull);
  EXPECT_EQ(ones.x[0], 0x408f276du);
  EXPECT_EQ(ones.x[1], 0x41c83b0eu);
  EXPECT_EQ(ones.x[2], 0xa20bc7c6u);
  EXPECT_EQ(ones.x[3], 0x6d5451fdu);
}

}  // namespace
}  // namespace penstock::kernels
