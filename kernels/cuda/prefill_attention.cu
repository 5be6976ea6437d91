// Prefill attention, portable path (sm_80+): online softmax over mma.sync tiles.
// Bound by the tensor cores. The rows of a tile are (token, query head) pairs of one KV head, so
// that grouped heads share each K and V tile and a chunk of 16 tokens fills a tile of 64 rows. A
// warp takes 16 or 32 rows: with 32 every K and V fragment read from shared memory is used twice;
// with 16 there are enough tiles for the whole card in short prompts.

#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/prefill_attention.h"

namespace penstock::kernels {
namespace {

constexpr int kWarps = 4;
constexpr float kLog2e = 1.4426950408889634f;

// kM: sixteens of rows a warp.
template <int kDim, int kM>
struct Layout {
  static constexpr int kRows = 16 * kM * kWarps;
  static constexpr int kStride = kDim + 8;
  // Of K and V a turn.
  static constexpr int kTokens = kDim > 128 || (kDim == 128 && kM == 2)
                                     ? 32
                                     : (kDim == 96 && kM == 2 ? 48 : 64);
  static constexpr int kStages = kDim <= 128 ? 2 : 1;
  static constexpr int kTile = kTokens * kStride;
  static constexpr int kBytes = (kRows * kStride + kStages * 2 * kTile) * 2;
  static_assert(kBytes <= kMaxPortableSharedBytes);
};

struct Tile {
  int first_row;  // of the sequence's (token, head) rows
  int num_rows;   // in all
  int group;      // query heads a KV head
  int start;      // position of the sequence's first new token
  int kv_begin;   // first and one past the last position any row of the tile sees
  int kv_end;
};

template <int kDim, int kM>
__device__ __forceinline__ void LoadKv(const PrefillAttentionParams& p, const int32_t* table,
                                       int kv_head, int token, int end, __nv_bfloat16* k,
                                       __nv_bfloat16* v) {
  using L = Layout<kDim, kM>;
  constexpr int kVectors = kDim / 8;
  for (int i = threadIdx.x; i < L::kTokens * kVectors; i += kWarps * kWarpSize) {
    const int row = i / kVectors;
    const int column = i % kVectors * 8;
    const int t = token + row;
    const bool valid = t < end;
    const __nv_bfloat16* source =
        valid ? p.kv.Row(table[t / p.kv.block_size], kv_head, t % p.kv.block_size) + column
              : p.kv.base;
    CopyAsync16(k + row * L::kStride + column, source, valid);
    CopyAsync16(v + row * L::kStride + column, valid ? source + p.kv.v_offset : source, valid);
  }
}

template <int kDim, int kM>
struct RowState {
  float out[kM][kDim / 8][4] = {};
  float maximum[kM][2];
  float sum[kM][2];
};

// Scales and masks scores, moves the running maximum and sum, and leaves probabilities in scores.
template <int kDim, int kM, bool kMasked>
__device__ __forceinline__ void Softmax(const PrefillAttentionParams& p, const Tile& tile,
                                        int first_row, int token, int m,
                                        float (&scores)[Layout<kDim, kM>::kTokens / 8][4],
                                        RowState<kDim, kM>* state) {
  constexpr int kTiles = Layout<kDim, kM>::kTokens / 8;
  const int lane = threadIdx.x % kWarpSize;
  const float scale = p.scale * kLog2e;
  float next[2] = {state->maximum[m][0], state->maximum[m][1]};
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scores[n][i] *= scale;
      if constexpr (kMasked) {
        const int row = first_row + lane / 4 + i / 2 * 8;
        const int position = tile.start + row / tile.group;
        const int t = token + n * 8 + lane % 4 * 2 + i % 2;
        const bool seen = t <= position && (p.window == 0 || t > position - p.window);
        if (!seen || row >= tile.num_rows) scores[n][i] = -INFINITY;
      }
      next[i / 2] = fmaxf(next[i / 2], scores[n][i]);
    }
  }
  float correction[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    next[r] = fmaxf(next[r], __shfl_xor_sync(0xffffffffu, next[r], 1));
    next[r] = fmaxf(next[r], __shfl_xor_sync(0xffffffffu, next[r], 2));
    correction[r] = next[r] == -INFINITY ? 1.0f : exp2f(state->maximum[m][r] - next[r]);
    state->maximum[m][r] = next[r];
    state->sum[m][r] *= correction[r];
  }
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float top = next[i / 2];
      scores[n][i] = top == -INFINITY ? 0.0f : exp2f(scores[n][i] - top);
      state->sum[m][i / 2] += scores[n][i];
    }
  }
  // After a few turns the maximum rarely moves.
  if (__any_sync(0xffffffffu, correction[0] != 1.0f || correction[1] != 1.0f)) {
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) state->out[m][n][i] *= correction[i / 2];
    }
  }
}

// One K/V tile for this warp's rows.
template <int kDim, int kM, bool kMasked>
__device__ __forceinline__ void Turn(const PrefillAttentionParams& p, const Tile& tile,
                                     const __nv_bfloat16* q, const __nv_bfloat16* k,
                                     const __nv_bfloat16* v, int token, RowState<kDim, kM>* state) {
  using L = Layout<kDim, kM>;
  const int warp_row = threadIdx.x / kWarpSize * 16 * kM;
  const int lane = threadIdx.x % kWarpSize;
  float scores[kM][L::kTokens / 8][4] = {};
#pragma unroll
  for (int d = 0; d < kDim; d += 16) {
    uint32_t a[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      LoadMatrix4(a[m], q + (warp_row + m * 16 + lane % 16) * L::kStride + d + lane / 16 * 8);
    }
#pragma unroll
    for (int n = 0; n < L::kTokens / 16; ++n) {
      uint32_t b[4];
      LoadMatrix4(b, k + (n * 16 + lane % 8 + lane / 16 * 8) * L::kStride + d + lane / 8 % 2 * 8);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        MmaBf16(scores[m][2 * n], a[m], b[0], b[1]);
        MmaBf16(scores[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
#pragma unroll
  for (int m = 0; m < kM; ++m) {
    Softmax<kDim, kM, kMasked>(p, tile, tile.first_row + warp_row + m * 16, token, m, scores[m],
                               state);
  }
#pragma unroll
  for (int t = 0; t < L::kTokens / 16; ++t) {
    uint32_t prob[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      const float(&low)[4] = scores[m][2 * t];
      const float(&high)[4] = scores[m][2 * t + 1];
      prob[m][0] = PackBf16(low[0], low[1]);
      prob[m][1] = PackBf16(low[2], low[3]);
      prob[m][2] = PackBf16(high[0], high[1]);
      prob[m][3] = PackBf16(high[2], high[3]);
    }
#pragma unroll
    for (int d = 0; d < kDim; d += 16) {
      uint32_t b[4];
      LoadMatrix4Transposed(b, v + (t * 16 + lane % 16) * L::kStride + d + lane / 16 * 8);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        MmaBf16(state->out[m][d / 8], prob[m], b[0], b[1]);
        MmaBf16(state->out[m][d / 8 + 1], prob[m], b[2], b[3]);
      }
    }
  }
}

template <int kDim, int kM>
__device__ __forceinline__ void Store(const PrefillAttentionParams& p, const Tile& tile,
                                      int token_begin, int kv_head, RowState<kDim, kM>* state) {
  const int warp = threadIdx.x / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
#pragma unroll
  for (int i = 0; i < 2 * kM; ++i) {
    const int m = i / 2;
    const int r = i % 2;
    float sum = state->sum[m][r];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    const int row = tile.first_row + (warp * kM + m) * 16 + lane / 4 + r * 8;
    if (row >= tile.num_rows) continue;
    const float inverse = sum > 0 ? 1.0f / sum : 0.0f;
    const int64_t head = kv_head * tile.group + row % tile.group;
    __nv_bfloat16* out =
        p.out +
        ((token_begin + row / tile.group) * static_cast<int64_t>(p.num_heads) + head) * kDim;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      *reinterpret_cast<uint32_t*>(out + n * 8 + lane % 4 * 2) =
          PackBf16(state->out[m][n][2 * r] * inverse, state->out[m][n][2 * r + 1] * inverse);
    }
  }
}

template <int kDim, int kM>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    PrefillAttentionKernel(const __grid_constant__ PrefillAttentionParams p) {
  using L = Layout<kDim, kM>;
  extern __shared__ __align__(16) __nv_bfloat16 shared[];
  AllowNext();
  WaitForPrevious();
  const int seq = blockIdx.z;
  const int kv_head = blockIdx.y;
  const int token_begin = p.token_begin[seq];
  Tile tile;
  tile.group = p.num_heads / p.kv.num_kv_heads;
  tile.num_rows = (p.token_begin[seq + 1] - token_begin) * tile.group;
  // The last rows see the most: start them first, so that the long tiles do not come at the end.
  const int num_tiles = (tile.num_rows + L::kRows - 1) / L::kRows;
  if (static_cast<int>(blockIdx.x) >= num_tiles) return;
  tile.first_row = (num_tiles - 1 - blockIdx.x) * L::kRows;
  tile.start = p.start_pos[seq];
  const int last_row = min(tile.first_row + L::kRows, tile.num_rows) - 1;
  const int first_position = tile.start + tile.first_row / tile.group;
  tile.kv_end = tile.start + last_row / tile.group + 1;
  tile.kv_begin =
      p.window > 0 ? max(0, first_position - p.window + 1) / L::kTokens * L::kTokens : 0;

  for (int i = threadIdx.x; i < L::kRows * (kDim / 8); i += kWarps * kWarpSize) {
    const int row = tile.first_row + i / (kDim / 8);
    const int column = i % (kDim / 8) * 8;
    const bool valid = row < tile.num_rows;
    const int64_t head = kv_head * tile.group + row % tile.group;
    const __nv_bfloat16* source =
        valid ? p.q +
                    ((token_begin + row / tile.group) * static_cast<int64_t>(p.num_heads) + head) *
                        kDim +
                    column
              : p.q;
    CopyAsync16(shared + i / (kDim / 8) * L::kStride + column, source, valid);
  }
  __nv_bfloat16* tiles = shared + L::kRows * L::kStride;
  const int32_t* table =
      p.block_tables + (p.table_begin == nullptr ? static_cast<int64_t>(seq) * p.max_blocks_per_seq
                                                 : p.table_begin[seq]);
  const auto load = [&](int turn) {
    const int token = tile.kv_begin + turn * L::kTokens;
    if (token < tile.kv_end) {
      __nv_bfloat16* k = tiles + turn % L::kStages * 2 * L::kTile;
      LoadKv<kDim, kM>(p, table, kv_head, token, tile.kv_end, k, k + L::kTile);
    }
    CopyAsyncCommit();
  };

  RowState<kDim, kM> state;
#pragma unroll
  for (int i = 0; i < 2 * kM; ++i) {
    state.maximum[i / 2][i % 2] = -INFINITY;
    state.sum[i / 2][i % 2] = 0;
  }
  const int num_turns = (tile.kv_end - tile.kv_begin + L::kTokens - 1) / L::kTokens;
  if (L::kStages > 1) load(0);
  for (int turn = 0; turn < num_turns; ++turn) {
    load(turn + L::kStages - 1);
    CopyAsyncWait<L::kStages - 1>();
    __syncthreads();
    const int token = tile.kv_begin + turn * L::kTokens;
    const __nv_bfloat16* k = tiles + turn % L::kStages * 2 * L::kTile;
    // Tiles that every row sees whole need no mask.
    const bool whole = token + L::kTokens - 1 <= first_position &&
                       (p.window == 0 || token > tile.kv_end - 1 - p.window) &&
                       tile.first_row + L::kRows <= tile.num_rows;
    if (whole) {
      Turn<kDim, kM, false>(p, tile, shared, k, k + L::kTile, token, &state);
    } else {
      Turn<kDim, kM, true>(p, tile, shared, k, k + L::kTile, token, &state);
    }
    __syncthreads();
  }
  Store<kDim, kM>(p, tile, token_begin, kv_head, &state);
}

template <int kDim, int kM>
cudaError_t LaunchRows(const PrefillAttentionParams& params, cudaStream_t stream) {
  using L = Layout<kDim, kM>;
  const cudaError_t error = cudaFuncSetAttribute(
      PrefillAttentionKernel<kDim, kM>, cudaFuncAttributeMaxDynamicSharedMemorySize, L::kBytes);
  if (error != cudaSuccess) return error;
  const int64_t rows =
      static_cast<int64_t>(params.max_new_tokens) * (params.num_heads / params.kv.num_kv_heads);
  const dim3 grid(static_cast<unsigned>((rows + L::kRows - 1) / L::kRows), params.kv.num_kv_heads,
                  params.num_seqs);
  return LaunchDependent(PrefillAttentionKernel<kDim, kM>, grid, kWarps * kWarpSize, L::kBytes,
                         stream, params);
}

template <int kDim>
cudaError_t Launch(const PrefillAttentionParams& params, cudaStream_t stream) {
  if constexpr (kDim == 64 || kDim == 96 || kDim == 128) {
    // Large tiles when there are enough of them to fill a card twice.
    constexpr int64_t kEnoughTiles = 256;
    const int64_t rows = static_cast<int64_t>(params.max_new_tokens) * params.num_heads;
    if (rows * params.num_seqs / Layout<kDim, 2>::kRows >= kEnoughTiles) {
      return LaunchRows<kDim, 2>(params, stream);
    }
  }
  return LaunchRows<kDim, 1>(params, stream);
}

}  // namespace

cudaError_t LaunchPrefillAttention(const PrefillAttentionParams& params, cudaStream_t stream) {
  if (params.num_seqs == 0 || params.max_new_tokens == 0) return cudaSuccess;
  const int num_kv = params.kv.num_kv_heads;
  if (num_kv <= 0 || params.num_heads % num_kv != 0 || params.kv.block_size % 16 != 0 ||
      params.num_seqs > 65535) {
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
