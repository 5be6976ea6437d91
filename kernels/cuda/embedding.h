#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace penstock::kernels {

// out[i] = table[ids[i]]. With last_tokens, a negative id -s stands for the token that slot s
// sampled last, which the host need not know yet. An id outside the table reads row 0: the host
// checks ids.
struct EmbeddingParams {
  const int32_t* ids = nullptr;          // [num_tokens]
  const int32_t* last_tokens = nullptr;  // [num_slots]; null = every id is a token
  const __nv_bfloat16* table = nullptr;  // [vocab_size, hidden]
  __nv_bfloat16* out = nullptr;          // [num_tokens, hidden]
  int32_t num_tokens = 0;
  int32_t vocab_size = 0;
  int32_t hidden = 0;  // a multiple of 8
};

[[nodiscard]] cudaError_t LaunchEmbedding(const EmbeddingParams& params, cudaStream_t stream);

}  // namespace penstock::kernels
