#pragma once

// The KV cache as kernels see it. A block holds all layers of its group for block_size tokens
// contiguously: [num_blocks][num_layers][K, V][num_kv_heads][block_size][head_dim], bf16.

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace penstock::kernels {

struct PagedKv {
  __nv_bfloat16* base = nullptr;
  int64_t block_stride = 0;  // elements from a block to the next
  int64_t layer_offset = 0;  // elements from a block's start to this layer's K
  int64_t v_offset = 0;      // elements from this layer's K to its V
  int32_t num_kv_heads = 0;
  int32_t block_size = 0;  // tokens: 16, 32 or 64
  int32_t head_dim = 0;

  // The K row of one token and head; add v_offset for V.
  __host__ __device__ __nv_bfloat16* Row(int32_t block, int32_t head, int32_t token) const {
    return base + block * block_stride + layer_offset +
           (static_cast<int64_t>(head) * block_size + token) * head_dim;
  }
};

// A cache of num_layers layers in one group, seen from one of them.
inline PagedKv MakePagedKv(__nv_bfloat16* base, int32_t num_layers, int32_t layer,
                           int32_t num_kv_heads, int32_t block_size, int32_t head_dim) {
  const int64_t plane = static_cast<int64_t>(num_kv_heads) * block_size * head_dim;
  return {.base = base,
          .block_stride = plane * 2 * num_layers,
          .layer_offset = plane * 2 * layer,
          .v_offset = plane,
          .num_kv_heads = num_kv_heads,
          .block_size = block_size,
          .head_dim = head_dim};
}

}  // namespace penstock::kernels
