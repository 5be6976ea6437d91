#pragma once

// Sampling on the CPU: one row of logits to a token. A function of the logits, the request's
// parameters and history, and (seed, choice, output index): never of its neighbours.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "worker/engine/sampling.h"
#include "worker/engine/step.h"

namespace penstock {

// What a slot remembers between its tokens. Owned by the runner's thread.
class SamplerState {
 public:
  // Counts prompt and replayed output for the penalties.
  void Init(const SamplingParams& params, std::span<const TokenId> prompt_ids,
            std::span<const TokenId> output_ids, int32_t vocab_size);
  void CountOutput(TokenId token);

  const SamplingParams& params() const { return params_; }
  // Changes logits by bias, penalties, the allowed ids and the minimum length. False: nothing to
  // change, logits were not touched.
  bool ChangesLogits(int32_t output_index) const;
  void ChangeLogits(int32_t output_index, std::span<float> logits) const;

 private:
  bool penalties() const;

  SamplingParams params_;
  // Empty without penalties.
  std::vector<int32_t> counts_;   // per id: occurrences in the output
  std::vector<uint8_t> present_;  // per id: occurs in prompt or output
  std::vector<TokenId> seen_;     // ids that are present, once each
};

struct SampledToken {
  TokenId token = 0;
  bool nonfinite = false;  // NaN or infinite logits, or no token is allowed; token is 0
  int32_t rank = 0;        // with logprobs: 1 = the best
};

class Sampler {
 public:
  Sampler(const kernels::CpuKernels& kernels, int32_t vocab_size);

  // allowed: one bit per id, empty = all. Appends the sampled token's logprob and the best ones to
  // *logprobs when the request wants them. Does not change state.
  SampledToken Sample(const SamplerState& state, std::span<const float> logits,
                      std::span<const uint32_t> allowed, int32_t output_index,
                      std::vector<TokenLogprob>* logprobs);

 private:
  struct Candidate {
    float weight;  // exp((logit - largest) / temperature)
    TokenId id;
  };
  TokenId Draw(const SamplingParams& params, std::span<const float> logits, float largest,
               int32_t output_index);
  TokenId DrawFiltered(const SamplingParams& params, double total, double uniform);
  TokenId DrawFromAll(double total, double uniform);
  int32_t AddLogprobs(const SamplingParams& params, std::span<const float> logits, float largest,
                      TokenId token, std::vector<TokenLogprob>* out);
  // Logprobs of the last draw's distribution.
  int32_t AddCandidateLogprobs(const SamplingParams& params, TokenId token,
                               std::vector<TokenLogprob>* out) const;

  const kernels::CpuKernels& kernels_;
  const int32_t vocab_size_;
  std::vector<float> changed_;        // [vocab] logits after bias, penalties and masks
  std::vector<float> weights_;        // [vocab]
  std::vector<double> block_totals_;  // of weights_
  std::vector<Candidate> candidates_;
  std::vector<TokenLogprob> best_;
};

// Uniform in [0, 1), 53 bits: Philox 4x32-10 with the seed as its key and (output index, choice) as
// its counter.
double PhiloxUniform(uint64_t seed, uint32_t choice, uint32_t output_index);

}  // namespace penstock
