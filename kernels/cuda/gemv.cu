// GEMV for 1 to 8 rows: a warp per output feature, 16-byte weight loads, several in flight. Bound
// by memory: the weights are read once, x comes from L1/L2 (it is small and shared by every warp).

#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/gemv.h"

namespace penstock::kernels {
namespace {

constexpr int kWarps = 4;
constexpr int kUnroll = 4;  // 16-byte loads in flight a lane

// Weights are used once a step: they must not push x and the KV cache out of L2.
__device__ __forceinline__ Bf16x8 LoadStreaming(const Bf16x8* pointer) {
  const uint4 raw = __ldcs(reinterpret_cast<const uint4*>(pointer));
  return *reinterpret_cast<const Bf16x8*>(&raw);
}

template <int kRows>
__device__ __forceinline__ void Accumulate(const Bf16x8& weight, const GemvParams& p, int vector,
                                           float (&sum)[kRows]) {
  float w[8];
  ToFloat(weight, w);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float x[8];
    ToFloat(reinterpret_cast<const Bf16x8*>(p.x + static_cast<int64_t>(r) * p.in_size)[vector], x);
#pragma unroll
    for (int j = 0; j < 8; ++j) sum[r] = fmaf(w[j], x[j], sum[r]);
  }
}

template <int kRows>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    GemvKernel(const __grid_constant__ GemvParams p) {
  const int lane = threadIdx.x % kWarpSize;
  const int64_t feature = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize;
  if (feature >= p.out_size) return;
  const auto* weight = reinterpret_cast<const Bf16x8*>(p.weight + feature * p.in_size);
  const int num_vectors = p.in_size / 8;
  float sum[kRows] = {};
  int v = lane;
  for (; v + (kUnroll - 1) * kWarpSize < num_vectors; v += kUnroll * kWarpSize) {
    Bf16x8 w[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) w[u] = LoadStreaming(weight + v + u * kWarpSize);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) Accumulate<kRows>(w[u], p, v + u * kWarpSize, sum);
  }
  for (; v < num_vectors; v += kWarpSize) Accumulate<kRows>(LoadStreaming(weight + v), p, v, sum);
#pragma unroll
  for (int r = 0; r < kRows; ++r) sum[r] = WarpSum(sum[r]);
  if (lane != 0) return;
  const float bias = p.bias == nullptr ? 0.0f : __bfloat162float(p.bias[feature]);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t at = static_cast<int64_t>(r) * p.out_size + feature;
    float value = sum[r] + bias;
    if (p.residual != nullptr) value += __bfloat162float(p.residual[at]);
    if (p.out_f32 != nullptr) {
      p.out_f32[at] = value;
    } else {
      p.out[at] = __float2bfloat16(value);
    }
  }
}

template <int kRows>
cudaError_t Launch(const GemvParams& params, cudaStream_t stream) {
  const int blocks = (params.out_size + kWarps - 1) / kWarps;
  GemvKernel<kRows><<<blocks, kWarps * kWarpSize, 0, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchGemv(const GemvParams& params, cudaStream_t stream) {
  if (params.num_rows == 0 || params.out_size == 0) return cudaSuccess;
  if (params.in_size <= 0 || params.in_size % 8 != 0) return cudaErrorInvalidValue;
  switch (params.num_rows) {
    case 1:
      return Launch<1>(params, stream);
    case 2:
      return Launch<2>(params, stream);
    case 3:
      return Launch<3>(params, stream);
    case 4:
      return Launch<4>(params, stream);
    case 5:
      return Launch<5>(params, stream);
    case 6:
      return Launch<6>(params, stream);
    case 7:
      return Launch<7>(params, stream);
    case 8:
      return Launch<8>(params, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace penstock::kernels
