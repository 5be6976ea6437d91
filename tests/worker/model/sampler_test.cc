#include "worker/model/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace penstock {
namespace {

constexpr int32_t kVocab = 1000;

std::vector<float> SomeLogits() {
  std::vector<float> logits(kVocab);
  for (int32_t i = 0; i < kVocab; ++i) {
    // The slope keeps i and 997 - i, whose squares leave the same rest, from being equal.
    const auto rest = static_cast<float>(i * i % 997);
    logits[static_cast<size_t>(i)] = 4.0f * std::sin(rest) - 1e-3f * static_cast<float>(i);
  }
  return logits;
}

// The plain meaning of the parameters: probabilities of every id, by sorting, in double.
std::vector<double> Expected(const SamplingParams& p, const std::vector<float>& logits) {
  std::vector<std::pair<double, int>> sorted;
  double largest = -1e30;
  for (const float l : logits) largest = std::max(largest, static_cast<double>(l));
  for (size_t i = 0; i < logits.size(); ++i) {
    const double w =
        std::exp((static_cast<double>(logits[i]) - largest) / static_cast<double>(p.temperature));
    if (w >= static_cast<double>(p.min_p)) sorted.emplace_back(-w, static_cast<int>(i));
  }
  std::sort(sorted.begin(), sorted.end());
  if (p.top_k > 0 && sorted.size() > static_cast<size_t>(p.top_k)) {
    sorted.resize(static_cast<size_t>(p.top_k));
  }
  double total = 0;
  for (const auto& [w, id] : sorted) total -= w;
  if (p.top_p < 1) {
    double sum = 0;
    size_t count = 0;
    while (count < sorted.size() && (count == 0 || sum < static_cast<double>(p.top_p) * total)) {
      sum -= sorted[count++].first;
    }
    sorted.resize(count);
    total = sum;
  }
  std::vector<double> probabilities(logits.size());
  for (const auto& [w, id] : sorted) probabilities[static_cast<size_t>(id)] = -w / total;
  return probabilities;
}

SampledToken SampleOnce(const SamplingParams& params, std::span<const float> logits,
                        int32_t index = 0, std::vector<TokenLogprob>* logprobs = nullptr,
                        std::span<const TokenId> prompt = {},
                        std::span<const TokenId> output = {}) {
  SamplerState state;
  state.Init(params, prompt, output, static_cast<int32_t>(logits.size()));
  Sampler sampler(kernels::KernelsFor(kernels::DetectIsa()), static_cast<int32_t>(logits.size()));
  std::vector<TokenLogprob> ignored;
  return sampler.Sample(state, logits, {}, index, logprobs != nullptr ? logprobs : &ignored);
}

TEST(SamplerTest, DrawsFollowTheFilteredDistribution) {
  const std::vector<float> logits = SomeLogits();
  const SamplingParams cases[] = {
      {.temperature = 1.0f, .seed = 1},
      {.temperature = 0.7f, .top_p = 0.8f, .seed = 2},
      {.temperature = 1.3f, .top_k = 20, .seed = 3},
      {.temperature = 1.0f, .top_p = 0.5f, .top_k = 50, .seed = 4},
      {.temperature = 1.0f, .min_p = 0.3f, .seed = 5},
      {.temperature = 1.0f, .top_p = 0.9f, .top_k = 400, .min_p = 0.05f, .seed = 6},
  };
  constexpr int kDraws = 15000;
  Sampler sampler(kernels::KernelsFor(kernels::DetectIsa()), kVocab);
  for (const SamplingParams& params : cases) {
    SamplerState state;
    state.Init(params, {}, {}, kVocab);
    std::vector<int> counts(kVocab);
    std::vector<TokenLogprob> logprobs;
    for (int i = 0; i < kDraws; ++i) {
      ++counts[static_cast<size_t>(sampler.Sample(state, logits, {}, i, &logprobs).token)];
    }
    const std::vector<double> expected = Expected(params, logits);
    double chi_square = 0;
    int cells = 0;
    for (size_t i = 0; i < kVocab; ++i) {
      const double mean = expected[i] * kDraws;
      if (mean == 0) {
        ASSERT_EQ(counts[i], 0) << "id " << i << " was filtered, seed " << params.seed;
        continue;
      }
      if (mean < 5) continue;
      chi_square += (counts[i] - mean) * (counts[i] - mean) / mean;
      ++cells;
    }
    // Mean `cells`, deviation sqrt(2 cells): five deviations.
    EXPECT_LT(chi_square, cells + 5 * std::sqrt(2.0 * cells)) << "seed " << params.seed;
  }
}

TEST(SamplerTest, EdgeValues) {
  const std::vector<float> logits = SomeLogits();
  const TokenId best = SampleOnce({.temperature = 0}, logits).token;
  EXPECT_EQ(logits[static_cast<size_t>(best)], *std::max_element(logits.begin(), logits.end()));
  for (int32_t i = 0; i < 50; ++i) {
    EXPECT_EQ(SampleOnce({.top_p = 0}, logits, i).token, best);
    EXPECT_EQ(SampleOnce({.top_p = 1e-9f}, logits, i).token, best);
    EXPECT_EQ(SampleOnce({.top_k = 1}, logits, i).token, best);
    EXPECT_EQ(SampleOnce({.temperature = 1e-9f}, logits, i).token, best);
    const SamplingParams plain = {.seed = 9};
    const TokenId token = SampleOnce(plain, logits, i).token;
    EXPECT_EQ(SampleOnce({.top_k = -1, .seed = 9}, logits, i).token, token);
    EXPECT_EQ(SampleOnce({.top_k = kVocab + 1, .seed = 9}, logits, i).token, token);
  }
  // Of equal logits the lowest id.
  EXPECT_EQ(SampleOnce({.temperature = 0}, std::vector<float>{1, 3, 3, 2}).token, 1);
}

TEST(SamplerTest, RandomnessIsAFunctionOfSeedChoiceAndIndex) {
  const std::vector<float> flat(kVocab, 0.0f);
  const SamplingParams a = {.seed = 1};
  const SamplingParams b = {.seed = 2};
  const SamplingParams c = {.seed = 1, .choice = 1};
  int same_seed = 0, same_choice = 0, same_index = 0;
  for (int32_t i = 0; i < 100; ++i) {
    const TokenId token = SampleOnce(a, flat, i).token;
    EXPECT_EQ(SampleOnce(a, flat, i).token, token);
    same_seed += SampleOnce(b, flat, i).token == token;
    same_choice += SampleOnce(c, flat, i).token == token;
    same_index += SampleOnce(a, flat, i + 1).token == token;
  }
  EXPECT_LT(same_seed, 5);
  EXPECT_LT(same_choice, 5);
  EXPECT_LT(same_index, 5);
}

TEST(SamplerTest, PhiloxKnownAnswer) {
  // Philox 4x32-10 of an all-zero counter and key begins with 6627e8d5 e169c58d.
  const uint64_t bits = 0x6627e8d5e169c58du >> 11;
  EXPECT_EQ(PhiloxUniform(0, 0, 0), static_cast<double>(bits) * 0x1p-53);
}

TEST(SamplerTest, PenaltiesCountPromptAndOutputAsTheyShould) {
  const std::vector<float> logits = {2.0f, 1.9f, -1.0f, -1.5f};
  const std::vector<TokenId> cats(50, 0);
  const std::vector<TokenId> output = {0};
  SamplingParams p = {.temperature = 0, .presence_penalty = 2.0f};
  EXPECT_EQ(SampleOnce(p, logits, 0, nullptr, cats).token, 0);  // the prompt does not count
  EXPECT_EQ(SampleOnce(p, logits, 1, nullptr, cats, output).token, 1);
  p = {.temperature = 0, .frequency_penalty = 0.06f};
  const std::vector<TokenId> twice = {0, 0};
  EXPECT_EQ(SampleOnce(p, logits, 1, nullptr, {}, output).token, 0);
  EXPECT_EQ(SampleOnce(p, logits, 2, nullptr, {}, twice).token, 1);
  p = {.temperature = 0, .repetition_penalty = 1.3f};
  EXPECT_EQ(SampleOnce(p, logits, 0, nullptr, cats).token, 1);  // the prompt counts
  // A negative logit is multiplied: -1 * 1.6 < -1.5.
  p.repetition_penalty = 1.6f;
  p.allowed_token_ids = {2, 3};
  const std::vector<TokenId> two = {2};
  EXPECT_EQ(SampleOnce(p, logits, 0).token, 2);
  EXPECT_EQ(SampleOnce(p, logits, 0, nullptr, two).token, 3);
}

TEST(SamplerTest, BiasAllowedIdsMinimumAndMask) {
  const std::vector<float> logits = {5.0f, 4.0f, 3.0f, 2.0f};
  EXPECT_EQ(SampleOnce({.temperature = 0, .logit_bias = {{3, 100.0f}}}, logits).token, 3);
  EXPECT_EQ(SampleOnce({.temperature = 0, .allowed_token_ids = {2}}, logits).token, 2);
  SamplingParams minimum = {.temperature = 0, .min_tokens = 3, .eos_and_stop_ids = {0, 1}};
  EXPECT_EQ(SampleOnce(minimum, logits, 2).token, 2);
  EXPECT_EQ(SampleOnce(minimum, logits, 3).token, 0);
  Sampler sampler(kernels::KernelsFor(kernels::DetectIsa()), 4);
  SamplerState state;
  state.Init({.temperature = 1.0f}, {}, {}, 4);
  std::vector<TokenLogprob> logprobs;
  const std::vector<uint32_t> mask = {0b1000};
  for (int32_t i = 0; i < 20; ++i) {
    EXPECT_EQ(sampler.Sample(state, logits, mask, i, &logprobs).token, 3);
  }
  const std::vector<uint32_t> none = {0};
  EXPECT_TRUE(sampler.Sample(state, logits, none, 0, &logprobs).nonfinite);
}

TEST(SamplerTest, LogprobsAreOfRawLogitsUnlessAskedOtherwise) {
  const std::vector<float> logits = SomeLogits();
  double total = 0;
  for (const float l : logits) total += std::exp(static_cast<double>(l));
  SamplingParams p = {.temperature = 2.0f, .top_k = 3, .seed = 4, .top_logprobs = 5};
  std::vector<TokenLogprob> out;
  const SampledToken sampled = SampleOnce(p, logits, 0, &out);
  ASSERT_EQ(out.size(), 6u);
  EXPECT_EQ(out[0].token, sampled.token);
  for (const TokenLogprob& l : out) {
    EXPECT_NEAR(l.logprob,
                static_cast<double>(logits[static_cast<size_t>(l.token)]) - std::log(total), 1e-5);
  }
  for (size_t i = 2; i < 6; ++i) EXPECT_GE(out[i - 1].logprob, out[i].logprob);
  int rank = 1;
  for (const float l : logits) rank += l > logits[static_cast<size_t>(sampled.token)];
  EXPECT_EQ(sampled.rank, rank);

  p.processed_logprobs = true;
  out.clear();
  SampleOnce(p, logits, 0, &out);
  ASSERT_EQ(out.size(), 4u);  // three are possible
  const std::vector<double> expected = Expected(p, logits);
  for (const TokenLogprob& l : out) {
    EXPECT_NEAR(l.logprob, std::log(expected[static_cast<size_t>(l.token)]), 1e-5);
  }
}

TEST(SamplerTest, NonFiniteLogitsAreFlagged) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> logits = SomeLogits();
    logits[999] = bad;
    EXPECT_TRUE(SampleOnce({.temperature = 0}, logits).nonfinite);
    EXPECT_TRUE(SampleOnce({.temperature = 1}, logits).nonfinite);
  }
  EXPECT_FALSE(SampleOnce({.temperature = 1}, SomeLogits()).nonfinite);
}

}  // namespace
}  // namespace penstock
