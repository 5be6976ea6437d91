#pragma once

// What fits into the memory for KV: the numbers an operator reads at start-up.

#include <cstdint>
#include <string>

#include "worker/model/model_spec.h"

namespace penstock {

struct MemoryUse {
  int64_t weight_bytes = 0;
  int64_t kv_bytes = 0;        // given to KV
  int64_t kv_token_bytes = 0;  // of one token over all layers
  int64_t kv_tokens = 0;       // of full attention that fit
  int32_t max_model_len = 0;
  double full_length_requests = 0.0;  // of max_model_len tokens, at once
};

MemoryUse ComputeMemoryUse(const ModelSpec& spec, int64_t weight_bytes, int64_t kv_bytes,
                           int kv_element_bytes, int block_size, int32_t max_model_len);

// "weights 93 MB; KV 1.1 GB holds 48,000 tokens (23,040 bytes each): 5.8 requests of 8,192 tokens".
std::string MemoryText(const MemoryUse& use);

// "1234567" -> "1,234,567".
std::string Grouped(int64_t number);
// "1.2 GB", "340 MB", "12 kB": powers of ten.
std::string BytesText(int64_t bytes);

}  // namespace penstock
