// The angle is rounded to f32 as in every other implementation of these models; its cosine and sine
// are taken in double, for angles reach the number of positions.

#include "kernels/cuda/rope_table.h"

namespace penstock::kernels {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    RopeTableKernel(const __grid_constant__ RopeTableParams p) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t position = i / p.half;
  const int64_t pair = i % p.half;
  if (position >= p.num_positions) return;
  const float angle = static_cast<float>(position) * p.inv_freq[pair];
  double s;
  double c;
  sincos(static_cast<double>(angle), &s, &c);
  float* row = p.cos_sin + position * 2 * p.half;
  row[pair] = static_cast<float>(c * p.factor);
  row[p.half + pair] = static_cast<float>(s * p.factor);
}

}  // namespace

cudaError_t LaunchRopeTable(const RopeTableParams& params, cudaStream_t stream) {
  if (params.num_positions <= 0 || params.half <= 0) return cudaErrorInvalidValue;
  const int64_t total = static_cast<int64_t>(params.num_positions) * params.half;
  RopeTableKernel<<<static_cast<unsigned>((total + kThreads - 1) / kThreads), kThreads, 0,
                    stream>>>(params);
  return cudaGetLastError();
}

}  // namespace penstock::kernels
