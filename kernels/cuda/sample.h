#pragma once

// Sampling on the device, without a sort and without logits going to the host: penalties, bias,
// mask, temperature, min-p, top-k, top-p, then the Gumbel maximum over what is left. Random numbers
// are a pure function of (seed, choice, output index, token), so a request's draw never depends on
// its neighbours. Order as vLLM's: bias and penalties, temperature, min-p, top-k, top-p; ties at a
// limit are kept.

#include <cuda_runtime_api.h>

#include <cstdint>

namespace penstock::kernels {

// What a sequence samples with; written once when it takes its slot.
struct SamplingSlot {
  float temperature = 1.0f;  // 0 = greedy
  float top_p = 1.0f;        // 1 = off; 0 keeps the best token
  float min_p = 0.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  float repetition_penalty = 1.0f;
  int32_t top_k = 0;       // 0 = off
  int32_t bias_begin = 0;  // logit_bias entries [begin, end)
  int32_t bias_end = 0;
  int32_t num_logprobs = -1;  // -1 = none
  uint32_t choice = 0;
  uint16_t use_counts = 0;          // 1 when a penalty is on
  uint16_t processed_logprobs = 0;  // 1: of what is sampled from, 0: of the raw logits
  uint64_t seed = 0;
};

inline constexpr int kMaxTopLogprobs = 20;
// Counts hold output occurrences in the low bits; this bit says that the prompt has the token.
inline constexpr uint16_t kInPrompt = 0x8000;

struct SampleParams {
  const float* logits = nullptr;            // [num_rows, vocab_size]
  const SamplingSlot* slots = nullptr;      // [num_slots]
  const int32_t* row_slots = nullptr;       // [num_rows]; 0 = padding: the row is skipped
  const int32_t* output_indices = nullptr;  // [num_rows]
  uint16_t* counts = nullptr;               // [num_slots, vocab_size]; null = no penalties in use
  const int32_t* bias_ids = nullptr;
  const float* bias_values = nullptr;
  const uint32_t* masks = nullptr;     // [num_masks, (vocab_size + 31) / 32], bit set = allowed
  const int32_t* row_masks = nullptr;  // [num_rows]: index into masks or -1; null = no masks
  float* scratch = nullptr;            // [num_rows, vocab_size]
  int32_t* tokens = nullptr;           // [num_rows]
  int32_t* last_tokens = nullptr;      // [num_slots]: the next step's input; null = not kept
  uint8_t* nonfinite = nullptr;        // [num_rows]: 1 when the row's logits hold NaN or +inf
  // [num_rows, kMaxTopLogprobs + 1]: the sampled token, then the best ones.
  int32_t* logprob_ids = nullptr;
  float* logprobs = nullptr;
  int32_t* sampled_ranks = nullptr;  // [num_rows], 1 = best
  int32_t num_rows = 0;
  int32_t vocab_size = 0;
};

[[nodiscard]] cudaError_t LaunchSample(const SampleParams& params, cudaStream_t stream);

}  // namespace penstock::kernels
