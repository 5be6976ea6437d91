#pragma once

// Attention of one new token per sequence over its paged KV (decode). All query heads of a KV head
// are computed together, so K and V are read once; long contexts are split over blocks of threads
// and the last one of a (sequence, KV head) combines the parts.

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/paged_kv.h"

namespace penstock::kernels {

inline constexpr int kMaxHeadsPerKvHead = 16;

struct DecodeAttentionParams {
  const __nv_bfloat16* q = nullptr;  // [num_seqs, num_heads, head_dim]
  PagedKv kv;                        // this layer's
  // Blocks of each sequence in order of position: [num_seqs, max_blocks_per_seq], or one list in
  // which sequence s begins at table_begin[s].
  const int32_t* block_tables = nullptr;
  const int32_t* table_begin = nullptr;  // [num_seqs] or null
  const int32_t* seq_lens = nullptr;  // [num_seqs]: tokens in the cache, the new one included; 0 =
                                      // a padded row, whose output is zero
  __nv_bfloat16* out = nullptr;       // [num_seqs, num_heads, head_dim]
  void* workspace = nullptr;          // DecodeAttentionWorkspaceBytes
  // [num_seqs, num_kv_heads], zero before the first launch and after each; for any launch sizes.
  int32_t* counters = nullptr;
  int32_t num_seqs = 0;
  int32_t num_heads = 0;  // a multiple of kv.num_kv_heads, at most 16 times it
  int32_t max_blocks_per_seq = 0;
  int32_t num_splits = 1;  // from PlanDecodeSplits
  int32_t window = 0;      // 0 = full attention; else the last `window` tokens
  float scale = 1.0f;      // of q·k, usually 1 / sqrt(head_dim)
};

// Splits that fill num_sms cards' multiprocessors at this batch and longest context.
int PlanDecodeSplits(int num_seqs, int num_kv_heads, int max_seq_len, int num_sms);
size_t DecodeAttentionWorkspaceBytes(int num_seqs, int num_heads, int head_dim, int num_splits);

// head_dim 16, 32, 64, 96, 128 or 256; block_size a multiple of 16.
[[nodiscard]] cudaError_t LaunchDecodeAttention(const DecodeAttentionParams& params,
                                                cudaStream_t stream);

}  // namespace penstock::kernels
