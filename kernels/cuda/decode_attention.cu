// Decode attention, portable path (sm_80+). Bound by memory: K and V are read once.
// A warp owns chunks of 16 consecutive tokens and runs its own cp.async pipeline, so warps never
// wait for each other until the end. Scores and outputs go through mma.sync with the KV head's
// query heads as the 16 rows (padded): the tensor cores are idle otherwise, and shuffles would cost
// more.

#include <algorithm>

#include "kernels/cuda/decode_attention.h"
#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/launch.h"

namespace penstock::kernels {
namespace {

constexpr int kWarps = 4;
constexpr int kChunk = 16;  // tokens a warp takes at a time; divides every block size
constexpr int kMaxSplits = 64;
constexpr float kLog2e = 1.4426950408889634f;

template <int kDim>
struct Layout {
  static constexpr int kStride = kDim + 8;  // padded row: ldmatrix without bank conflicts
  static constexpr int kTile = kChunk * kStride;
  static constexpr int kStages = kDim <= 128 ? (kDim <= 64 ? 4 : 2) : 1;
  // q, then per warp kStages of (K tile, V tile)
  static constexpr int kBytes = (kTile + kWarps * kStages * 2 * kTile) * 2;
  static_assert(kBytes <= kMaxPortableSharedBytes);
  // At the end the space holds every warp's sums, [kWarps][16][kSumStride] floats, and in the block
  // that combines the splits their weights.
  static constexpr int kSumStride = kDim + 4;
  static_assert(kWarps * 16 * kSumStride * 4 <= kBytes);
  static_assert(16 * kMaxSplits * 4 <= kBytes);
};

struct Partials {
  float* out;       // [num_seqs][num_heads][num_splits][dim], not normalised
  float2* max_sum;  // [num_seqs][num_heads][num_splits]: running maximum (log2 units), sum
};

__host__ __device__ inline Partials PartialsOf(const DecodeAttentionParams& p) {
  Partials parts;
  const int64_t rows = static_cast<int64_t>(p.num_seqs) * p.num_heads;
  parts.max_sum = static_cast<float2*>(p.workspace);
  parts.out = reinterpret_cast<float*>(parts.max_sum + rows * p.num_splits);
  return parts;
}

template <int kDim>
__device__ __forceinline__ void LoadTile(__nv_bfloat16* shared, const __nv_bfloat16* global,
                                         int lane, int valid_tokens) {
  constexpr int kVectors = kDim / 8;
  for (int i = lane; i < kChunk * kVectors; i += kWarpSize) {
    const int token = i / kVectors;
    const int v = i % kVectors;
    CopyAsync16(shared + token * Layout<kDim>::kStride + v * 8, global + token * kDim + v * 8,
                token < valid_tokens);
  }
}

// Adds the parts of all splits of this (sequence, KV head); run by the block that finished last.
template <int kDim>
__device__ void Combine(const DecodeAttentionParams& p, const Partials& parts, int seq, int kv_head,
                        float* weights) {
  const int group = p.num_heads / p.kv.num_kv_heads;
  const int64_t first_row = static_cast<int64_t>(seq) * p.num_heads + kv_head * group;
  const int lane = threadIdx.x % kWarpSize;
  // A warp a row, a lane for two splits.
  for (int row = threadIdx.x / kWarpSize; row < group; row += kWarps) {
    float2 ms[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int split = lane + i * kWarpSize;
      ms[i] = split < p.num_splits
                  ? __ldcg(&parts.max_sum[(first_row + row) * p.num_splits + split])
                  : float2{-INFINITY, 0.0f};
    }
    const float maximum = WarpMax(fmaxf(ms[0].x, ms[1].x));
    float weight[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) weight[i] = ms[i].y > 0 ? exp2f(ms[i].x - maximum) : 0.0f;
    const float total = WarpSum(weight[0] * ms[0].y + weight[1] * ms[1].y);
    const float inverse = total > 0 ? 1.0f / total : 0.0f;
#pragma unroll
    for (int i = 0; i < 2; ++i)
      weights[row * kMaxSplits + lane + i * kWarpSize] = weight[i] * inverse;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < group * kDim; i += blockDim.x) {
    const int row = i / kDim;
    const float* from = parts.out + (first_row + row) * p.num_splits * kDim + i % kDim;
    float value = 0;
#pragma unroll 8
    for (int s = 0; s < p.num_splits; ++s) {
      // A split that saw no token wrote nothing.
      const float weight = weights[row * kMaxSplits + s];
      const float part = __ldcg(from + s * kDim);
      value += weight > 0 ? part * weight : 0.0f;
    }
    p.out[(first_row + row) * kDim + i % kDim] = __float2bfloat16(value);
  }
}

template <int kDim>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    DecodeAttentionKernel(const __grid_constant__ DecodeAttentionParams p) {
  using L = Layout<kDim>;
  extern __shared__ __align__(16) __nv_bfloat16 shared[];
  __shared__ float warp_max[kWarps][16];
  __shared__ float warp_sum[kWarps][16];
  __shared__ int arrived;
  const int split = blockIdx.x;
  const int kv_head = blockIdx.y;
  const int seq = blockIdx.z;
  const int warp = threadIdx.x / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  const int group = p.num_heads / p.kv.num_kv_heads;
  const int length = p.seq_lens[seq];
  const int begin = p.window > 0 ? max(0, length - p.window) : 0;
  const int first_chunk = begin / kChunk;
  const int num_chunks = (length + kChunk - 1) / kChunk - first_chunk;

  const auto tile = [&](int stage, int which) {
    return shared + L::kTile * (1 + (warp * L::kStages + stage) * 2 + which);
  };
  const int32_t* table =
      p.block_tables + (p.table_begin == nullptr ? static_cast<int64_t>(seq) * p.max_blocks_per_seq
                                                 : p.table_begin[seq]);
  // Chunks go round robin over all warps of all splits.
  const int stride = gridDim.x * kWarps;
  const int mine = split * kWarps + warp;
  const auto load = [&](int step) {
    const int index = mine + step * stride;
    if (index >= num_chunks) return;
    const int token = (first_chunk + index) * kChunk;
    const __nv_bfloat16* k =
        p.kv.Row(table[token / p.kv.block_size], kv_head, token % p.kv.block_size);
    LoadTile<kDim>(tile(step % L::kStages, 0), k, lane, length - token);
    LoadTile<kDim>(tile(step % L::kStages, 1), k + p.kv.v_offset, lane, length - token);
  };
  // The kernel before writes the last token's K and V, and q: all others are loaded meanwhile.
  const auto is_early = [&](int step) {
    return (first_chunk + mine + step * stride + 1) * kChunk < length;
  };
  for (int s = 0; s < L::kStages; ++s) {
    if (is_early(s)) load(s);
  }
  AllowNext();
  WaitForPrevious();
  // Query rows, padded to 16 with zeros.
  const __nv_bfloat16* q = p.q + (static_cast<int64_t>(seq) * p.num_heads + kv_head * group) * kDim;
  for (int i = threadIdx.x; i < 16 * (kDim / 8); i += blockDim.x) {
    const int row = i / (kDim / 8);
    CopyAsync16(shared + row * L::kStride + i % (kDim / 8) * 8, row < group ? q + i * 8 : q,
                row < group);
  }
  for (int s = 0; s < L::kStages; ++s) {
    if (!is_early(s)) load(s);
    CopyAsyncCommit();
  }
  CopyAsyncWait<L::kStages - 1>();
  __syncthreads();  // q is in every thread's first group, and every warp reads all of it

  float out[kDim / 8][4] = {};
  float row_max[2] = {-INFINITY, -INFINITY};  // rows lane / 4 and lane / 4 + 8
  float row_sum[2] = {0, 0};
  const float scale = p.scale * kLog2e;
  for (int step = 0; mine + step * stride < num_chunks; ++step) {
    const __nv_bfloat16* k = tile(step % L::kStages, 0);
    const __nv_bfloat16* v = tile(step % L::kStages, 1);

    float scores[2][4] = {};
#pragma unroll
    for (int d = 0; d < kDim; d += 16) {
      uint32_t a[4];
      uint32_t b[4];
      LoadMatrix4(a, shared + (lane % 16) * L::kStride + d + lane / 16 * 8);
      LoadMatrix4(b, k + (lane % 8 + lane / 16 * 8) * L::kStride + d + lane / 8 % 2 * 8);
      MmaBf16(scores[0], a, b[0], b[1]);
      MmaBf16(scores[1], a, b[2], b[3]);
    }
    const int token = (first_chunk + mine + step * stride) * kChunk;
    float chunk_max[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int t = token + n * 8 + lane % 4 * 2 + i % 2;
        scores[n][i] = t < length && t >= begin ? scores[n][i] * scale : -INFINITY;
        chunk_max[i / 2] = fmaxf(chunk_max[i / 2], scores[n][i]);
      }
    }
    float correction[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      chunk_max[r] = fmaxf(chunk_max[r], __shfl_xor_sync(0xffffffffu, chunk_max[r], 1));
      chunk_max[r] = fmaxf(chunk_max[r], __shfl_xor_sync(0xffffffffu, chunk_max[r], 2));
      const float next = fmaxf(row_max[r], chunk_max[r]);
      correction[r] = next == -INFINITY ? 1.0f : exp2f(row_max[r] - next);
      row_max[r] = next;
      row_sum[r] *= correction[r];
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float m = row_max[i / 2];
        scores[n][i] = m == -INFINITY ? 0.0f : exp2f(scores[n][i] - m);
        row_sum[i / 2] += scores[n][i];
      }
    }
    const uint32_t prob[4] = {
        PackBf16(scores[0][0], scores[0][1]), PackBf16(scores[0][2], scores[0][3]),
        PackBf16(scores[1][0], scores[1][1]), PackBf16(scores[1][2], scores[1][3])};
#pragma unroll
    for (int d = 0; d < kDim; d += 16) {
      uint32_t b[4];
      LoadMatrix4Transposed(b, v + (lane % 16) * L::kStride + d + lane / 16 * 8);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float(&o)[4] = out[d / 8 + h];
        o[0] *= correction[0];
        o[1] *= correction[0];
        o[2] *= correction[1];
        o[3] *= correction[1];
        MmaBf16(o, prob, b[2 * h], b[2 * h + 1]);
      }
    }
    __syncwarp();  // the stage may be overwritten now
    load(step + L::kStages);
    CopyAsyncCommit();
    CopyAsyncWait<L::kStages - 1>();
    __syncwarp();
  }
  CopyAsyncWait<0>();

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    row_sum[r] += __shfl_xor_sync(0xffffffffu, row_sum[r], 1);
    row_sum[r] += __shfl_xor_sync(0xffffffffu, row_sum[r], 2);
    if (lane % 4 == 0) {
      warp_max[warp][lane / 4 + 8 * r] = row_max[r];
      warp_sum[warp][lane / 4 + 8 * r] = row_sum[r];
    }
  }
  __syncthreads();  // all warps are past their tiles too: the space becomes the block's sum
  auto* sums = reinterpret_cast<float*>(shared);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = lane / 4 + 8 * r;
    if (row >= group) continue;
    float block_max = -INFINITY;
    for (int w = 0; w < kWarps; ++w) block_max = fmaxf(block_max, warp_max[w][row]);
    const float weight = row_max[r] == -INFINITY ? 0.0f : exp2f(row_max[r] - block_max);
    float* mine_out = sums + (warp * 16 + row) * L::kSumStride + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      *reinterpret_cast<float2*>(mine_out + n * 8) = {out[n][2 * r] * weight,
                                                      out[n][2 * r + 1] * weight};
    }
  }
  __syncthreads();

  const Partials parts = PartialsOf(p);
  const bool single = gridDim.x == 1;
  for (int i = threadIdx.x; i < group * kDim; i += blockDim.x) {
    const int row = i / kDim;
    float maximum = -INFINITY;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) maximum = fmaxf(maximum, warp_max[w][row]);
    float total = 0;
    float value = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      if (warp_sum[w][row] > 0) total += warp_sum[w][row] * exp2f(warp_max[w][row] - maximum);
      value += sums[(w * 16 + row) * L::kSumStride + i % kDim];
    }
    const int64_t q_row = static_cast<int64_t>(seq) * p.num_heads + kv_head * group + row;
    if (single) {
      p.out[q_row * kDim + i % kDim] = __float2bfloat16(total > 0 ? value / total : 0.0f);
    } else {
      parts.out[(q_row * p.num_splits + split) * kDim + i % kDim] = value;
      if (i % kDim == 0) parts.max_sum[q_row * p.num_splits + split] = {maximum, total};
    }
  }
  if (single) return;

  __threadfence();
  __syncthreads();
  int32_t* counter = &p.counters[seq * p.kv.num_kv_heads + kv_head];
  if (threadIdx.x == 0) arrived = atomicAdd(counter, 1);
  __syncthreads();
  if (arrived != p.num_splits - 1) return;
  __threadfence();
  Combine<kDim>(p, parts, seq, kv_head, reinterpret_cast<float*>(shared));
  if (threadIdx.x == 0) *counter = 0;  // ready for the next launch
}

template <int kDim>
cudaError_t Launch(const DecodeAttentionParams& params, cudaStream_t stream) {
  const cudaError_t error =
      cudaFuncSetAttribute(DecodeAttentionKernel<kDim>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           Layout<kDim>::kBytes);
  if (error != cudaSuccess) return error;
  const dim3 grid(params.num_splits, params.kv.num_kv_heads, params.num_seqs);
  return LaunchDependent(DecodeAttentionKernel<kDim>, grid, kWarps * kWarpSize,
                         Layout<kDim>::kBytes, stream, params);
}

}  // namespace

// Blocks run in waves of as many as the card holds: the split whose waves are fullest, and of
// nearly equal ones the smallest.
int PlanDecodeSplits(int num_seqs, int num_kv_heads, int max_seq_len, int num_sms) {
  constexpr int kBlocksPerSm = 3;  // by shared memory
  constexpr int kMost = 32;
  constexpr double kWorthIt = 0.97;
  const int64_t rows = std::max(1, num_seqs * num_kv_heads);
  const int64_t slots = int64_t{kBlocksPerSm} * num_sms;
  // A block is worth starting for a chunk per warp at least.
  const int useful = std::max(1, (max_seq_len + kWarps * kChunk - 1) / (kWarps * kChunk));
  int best = 1;
  double best_time = 1e300;
  for (int splits = 1; splits <= std::min(useful, kMost); ++splits) {
    const double waves = static_cast<double>((rows * splits + slots - 1) / slots);
    if (splits > 1 && waves > 16) break;
    const double time = waves / splits;
    if (time < best_time * kWorthIt) {
      best = splits;
      best_time = time;
    }
  }
  return best;
}

size_t DecodeAttentionWorkspaceBytes(int num_seqs, int num_heads, int head_dim, int num_splits) {
  const size_t rows = static_cast<size_t>(num_seqs) * num_heads;
  return rows * num_splits * (sizeof(float2) + head_dim * sizeof(float));
}

cudaError_t LaunchDecodeAttention(const DecodeAttentionParams& params, cudaStream_t stream) {
  if (params.num_seqs == 0) return cudaSuccess;
  const int num_kv = params.kv.num_kv_heads;
  if (num_kv <= 0 || params.num_heads % num_kv != 0 ||
      params.num_heads / num_kv > kMaxHeadsPerKvHead || params.kv.block_size % kChunk != 0 ||
      params.num_splits < 1 || params.num_splits > kMaxSplits || params.num_seqs > 65535) {
    return cudaErrorInvalidValue;
  }
  switch (params.kv.head_dim) {
    case 16:
      return Launch<16>(params, stream);
    case 32:
      return Launch<32>(params, stream);
    case 64:
      return Launch<64>(params, stream);
    case 96:
      return Launch<96>(params, stream);
    case 128:
      return Launch<128>(params, stream);
    case 256:
      return Launch<256>(params, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace penstock::kernels
