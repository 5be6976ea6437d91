#pragma once

// What decides a request's next token. Plain data, validated before it gets here: every number is
// finite and in range.

#include <cstdint>
#include <utility>
#include <vector>

#include "worker/engine/ids.h"

namespace penstock {

struct SamplingParams {
  float temperature = 1.0f;  // 0 = greedy
  float top_p = 1.0f;        // 1 = off; 0 keeps the best token
  int32_t top_k = 0;         // 0 = off
  float min_p = 0.0f;        // 0 = off
  // Presence and frequency count generated tokens only; repetition counts prompt and output.
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  float repetition_penalty = 1.0f;
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::vector<TokenId> allowed_token_ids;  // empty = all
  // Random numbers are a pure function of (seed, choice, output index).
  uint64_t seed = 0;
  uint32_t choice = 0;
  // Before this many output tokens, every id in eos_and_stop_ids is masked out.
  int32_t min_tokens = 0;
  std::vector<TokenId> eos_and_stop_ids;
  // -1 = no logprobs; otherwise the sampled token's and this many of the best.
  int32_t top_logprobs = -1;
  bool processed_logprobs = false;  // after temperature and filters, instead of the raw logits
};

}  // namespace penstock
