// RMSNorm(+residual): one block a row, the row stays in registers between the two passes.
// Bound by memory: 4 (with residual 8) bytes an element.

#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rms_norm.h"

namespace penstock::kernels {
namespace {

constexpr int kMaxHidden = 16384;
constexpr int kMaxThreads = 512;
constexpr int kMaxVectors = kMaxHidden / 8 / kMaxThreads;  // 16-byte vectors a thread

__global__ void __launch_bounds__(kMaxThreads)
    RmsNormKernel(const __grid_constant__ RmsNormParams p) {
  __shared__ float scratch[kMaxThreads / kWarpSize];
  const int64_t row = blockIdx.x;
  const int num_vectors = p.hidden / 8;
  AllowNext();
  WaitForPrevious();
  const int64_t from = p.rows == nullptr ? row : p.rows[row];
  const auto* x = reinterpret_cast<const Bf16x8*>(p.x + from * p.x_stride);
  auto* residual =
      p.residual == nullptr ? nullptr : reinterpret_cast<Bf16x8*>(p.residual + row * p.hidden);
  float values[kMaxVectors][8];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kMaxVectors; ++i) {
    const int v = threadIdx.x + i * blockDim.x;
    if (v >= num_vectors) break;
    ToFloat(x[v], values[i]);
    if (residual != nullptr) {
      float add[8];
      ToFloat(residual[v], add);
#pragma unroll
      for (int j = 0; j < 8; ++j) values[i][j] += add[j];
      // The stream keeps bf16, and the norm sees what the stream keeps.
      const Bf16x8 rounded = ToBf16(values[i]);
      residual[v] = rounded;
      ToFloat(rounded, values[i]);
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) sum += values[i][j] * values[i][j];
  }
  const float scale = rsqrtf(BlockSum(sum, scratch) / p.hidden + p.eps);
  const auto* weight = reinterpret_cast<const Bf16x8*>(p.weight);
  auto* out = reinterpret_cast<Bf16x8*>(p.out + row * p.hidden);
#pragma unroll
  for (int i = 0; i < kMaxVectors; ++i) {
    const int v = threadIdx.x + i * blockDim.x;
    if (v >= num_vectors) break;
    float w[8];
    ToFloat(weight[v], w);
#pragma unroll
    for (int j = 0; j < 8; ++j) w[j] *= values[i][j] * scale;
    out[v] = ToBf16(w);
  }
}

}  // namespace

cudaError_t LaunchRmsNorm(const RmsNormParams& params, cudaStream_t stream) {
  if (params.num_rows == 0) return cudaSuccess;
  if (params.hidden <= 0 || params.hidden % 8 != 0 || params.hidden > kMaxHidden ||
      params.x_stride % 8 != 0 || (params.rows != nullptr && params.residual != nullptr)) {
    return cudaErrorInvalidValue;
  }
  const int vectors = params.hidden / 8;
  const int threads = vectors >= kMaxThreads ? kMaxThreads : (vectors + 31) / 32 * 32;
  return LaunchDependent(RmsNormKernel, dim3(params.num_rows), threads, 0, stream, params);
}

}  // namespace penstock::kernels
