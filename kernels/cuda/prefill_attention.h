#pragma once

// Causal attention of several new tokens per sequence over its paged KV (prefill, in chunks or
// whole). K and V of the new tokens are in the cache already.

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/paged_kv.h"

namespace penstock::kernels {

struct PrefillAttentionParams {
  const __nv_bfloat16* q = nullptr;  // [total_tokens, num_heads, head_dim]
  PagedKv kv;                        // this layer's
  // Blocks of each sequence in order of position: [num_seqs, max_blocks_per_seq], or one list in
  // which sequence s begins at table_begin[s].
  const int32_t* block_tables = nullptr;
  const int32_t* table_begin = nullptr;  // [num_seqs] or null
  const int32_t* token_begin = nullptr;  // [num_seqs + 1]: a sequence's tokens in q and out
  const int32_t* start_pos = nullptr;    // [num_seqs]: position of its first new token
  __nv_bfloat16* out = nullptr;          // [total_tokens, num_heads, head_dim]
  int32_t num_seqs = 0;
  int32_t max_new_tokens = 0;  // the longest sequence's new tokens: sizes the grid
  int32_t num_heads = 0;       // a multiple of kv.num_kv_heads
  int32_t max_blocks_per_seq = 0;
  int32_t window =
      0;  // 0 = full attention; else each token sees the last `window`, itself included
  float scale = 1.0f;
};

// head_dim 16, 32, 64, 96, 128 or 256; block_size a multiple of 16.
[[nodiscard]] cudaError_t LaunchPrefillAttention(const PrefillAttentionParams& params,
                                                 cudaStream_t stream);

}  // namespace penstock::kernels
