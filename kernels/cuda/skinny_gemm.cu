// Skinny GEMM, portable path (sm_80+): weights are the 16-row side of mma.sync, the rows of x its
// 8-column side. Bound by memory: the weights are read once, straight into fragments.
//
// A dot product does not care in which order k comes, as long as both sides agree. So a lane takes
// eight consecutive k of a weight row in one 16-byte load and uses them as the fragments of two
// products; x is read with the same permutation. No shared memory on the weights' way.
// The warps of a block split k and add their parts at the end.

#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/skinny_gemm.h"

namespace penstock::kernels {
namespace {

constexpr int kWarps = 8;
constexpr int kFeatures = 16;  // a block's

struct alignas(16) Quad {
  uint32_t pair[4];  // eight bf16
};

// Weights are used once a step: they must not push x and the KV cache out of L2.
__device__ __forceinline__ Quad LoadWeights(const __nv_bfloat16* from, bool valid) {
  if (!valid) return {{0, 0, 0, 0}};
  const uint4 raw = __ldcs(reinterpret_cast<const uint4*>(from));
  return {{raw.x, raw.y, raw.z, raw.w}};
}

template <int kTiles, int kUnroll>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    SkinnyGemmKernel(const __grid_constant__ SkinnyGemmParams p) {
  __shared__ float parts[kWarps][kFeatures][kTiles * 8 + 1];
  const int warp = threadIdx.x / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  const int row = lane / 4;         // of the fragments: a feature, and a row of x
  const int column = lane % 4 * 8;  // the lane's eight k within 32
  const int feature = blockIdx.x * kFeatures + row;
  const bool valid[2] = {feature < p.out_size, feature + 8 < p.out_size};
  const __nv_bfloat16* weight = p.weight + static_cast<int64_t>(feature) * p.in_size + column;
  const int64_t eight_rows = static_cast<int64_t>(8) * p.in_size;

  float sums[kTiles][4] = {};
  const auto multiply = [&](const Quad& w0, const Quad& w1, int k) {
    const uint32_t a0[4] = {w0.pair[0], w1.pair[0], w0.pair[1], w1.pair[1]};
    const uint32_t a1[4] = {w0.pair[2], w1.pair[2], w0.pair[3], w1.pair[3]};
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      // Rows beyond the last repeat it: their sums are never written.
      const int x_row = min(t * 8 + row, p.num_rows - 1);
      const Quad x = *reinterpret_cast<const Quad*>(p.x + static_cast<int64_t>(x_row) * p.in_size +
                                                    k + column);
      MmaBf16(sums[t], a0, x.pair[0], x.pair[1]);
      MmaBf16(sums[t], a1, x.pair[2], x.pair[3]);
    }
  };
  const int num_blocks = p.in_size / 32;
  int block = warp;
  for (; block + (kUnroll - 1) * kWarps < num_blocks; block += kUnroll * kWarps) {
    Quad w[kUnroll][2];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const __nv_bfloat16* from = weight + (block + u * kWarps) * 32;
      w[u][0] = LoadWeights(from, valid[0]);
      w[u][1] = LoadWeights(from + eight_rows, valid[1]);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) multiply(w[u][0], w[u][1], (block + u * kWarps) * 32);
  }
  for (; block < num_blocks; block += kWarps) {
    const __nv_bfloat16* from = weight + block * 32;
    multiply(LoadWeights(from, valid[0]), LoadWeights(from + eight_rows, valid[1]), block * 32);
  }

#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      parts[warp][row + i / 2 * 8][t * 8 + lane % 4 * 2 + i % 2] = sums[t][i];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < p.num_rows * kFeatures; i += kWarps * kWarpSize) {
    const int x_row = i / kFeatures;
    const int out_feature = blockIdx.x * kFeatures + i % kFeatures;
    if (out_feature >= p.out_size) continue;
    float value = p.bias == nullptr ? 0.0f : __bfloat162float(p.bias[out_feature]);
#pragma unroll
    for (int w = 0; w < kWarps; ++w) value += parts[w][i % kFeatures][x_row];
    const int64_t at = static_cast<int64_t>(x_row) * p.out_size + out_feature;
    if (p.residual != nullptr) value += __bfloat162float(p.residual[at]);
    if (p.out_f32 != nullptr) {
      p.out_f32[at] = value;
    } else {
      p.out[at] = __float2bfloat16(value);
    }
  }
}

template <int kTiles, int kUnroll>
cudaError_t Launch(const SkinnyGemmParams& params, cudaStream_t stream) {
  static_assert(kWarps * kFeatures * (kTiles * 8 + 1) * 4 <= 48 * 1024);
  const int blocks = (params.out_size + kFeatures - 1) / kFeatures;
  SkinnyGemmKernel<kTiles, kUnroll><<<blocks, kWarps * kWarpSize, 0, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchSkinnyGemm(const SkinnyGemmParams& params, cudaStream_t stream) {
  if (params.num_rows == 0 || params.out_size == 0) return cudaSuccess;
  if (params.in_size <= 0 || params.in_size % 32 != 0 || params.num_rows > kMaxSkinnyRows) {
    return cudaErrorInvalidValue;
  }
  if (params.num_rows <= 8) return Launch<1, 4>(params, stream);
  if (params.num_rows <= 16) return Launch<2, 4>(params, stream);
  if (params.num_rows <= 32) return Launch<4, 4>(params, stream);
  return Launch<8, 2>(params, stream);
}

}  // namespace penstock::kernels
