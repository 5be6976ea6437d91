#pragma once

// What happens between the QKV projection and attention, in one pass: split, bias, per-head RMSNorm
// of q and k (Qwen3), RoPE, and the write of k and v into the paged cache.

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/paged_kv.h"

namespace penstock::kernels {

struct RopeKvParams {
  // [num_tokens, (num_heads + 2 * num_kv_heads) * head_dim]: q, then k, then v heads.
  const __nv_bfloat16* qkv = nullptr;
  const __nv_bfloat16* bias = nullptr;    // same width as a row of qkv; null = none
  const __nv_bfloat16* q_norm = nullptr;  // [head_dim]; null = none
  const __nv_bfloat16* k_norm = nullptr;  // [head_dim]
  const float* cos_sin = nullptr;         // [max_position, rotary_dim]: cosines, then sines
  const int32_t* positions = nullptr;     // [num_tokens]
  // [num_tokens]: block * block_size + offset of the token's place in the cache; -1 = do not write
  const int64_t* kv_slots = nullptr;
  __nv_bfloat16* q_out = nullptr;  // [num_tokens, num_heads, head_dim]
  PagedKv kv;
  int32_t num_tokens = 0;
  int32_t num_heads = 0;
  int32_t rotary_dim = 0;  // even, <= head_dim; pairs are (i, i + rotary_dim / 2)
  float eps = 1e-6f;
};

// head_dim (in kv): 64, 80, 96, 128 or 256.
[[nodiscard]] cudaError_t LaunchRopeKv(const RopeKvParams& params, cudaStream_t stream);

}  // namespace penstock::kernels
