// act(gate) * up: elementwise, bound by memory (6 bytes an output element).

#include "kernels/cuda/activation.h"
#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/launch.h"

namespace penstock::kernels {
namespace {

constexpr int kThreads = 256;

template <GateActivation kActivation>
__device__ __forceinline__ float Activate(float x) {
  if constexpr (kActivation == GateActivation::kSilu) {
    return x / (1.0f + __expf(-x));
  } else if constexpr (kActivation == GateActivation::kGeluTanh) {
    constexpr float kSqrt2OverPi = 0.7978845608028654f;
    return 0.5f * x * (1.0f + tanhf(kSqrt2OverPi * (x + 0.044715f * x * x * x)));
  } else {
    return 0.5f * x * (1.0f + erff(x * 0.7071067811865475f));
  }
}

template <GateActivation kActivation>
__global__ void __launch_bounds__(kThreads) GateUpKernel(const __grid_constant__ GateUpParams p) {
  const int64_t row = blockIdx.y;
  const int v = blockIdx.x * kThreads + threadIdx.x;
  const int num_vectors = p.size / 8;
  AllowNext();
  WaitForPrevious();
  if (v >= num_vectors) return;
  const auto* gate = reinterpret_cast<const Bf16x8*>(p.gate_up + row * 2 * p.size);
  float g[8];
  float u[8];
  ToFloat(gate[v], g);
  ToFloat(gate[num_vectors + v], u);
#pragma unroll
  for (int j = 0; j < 8; ++j) u[j] *= Activate<kActivation>(g[j]);
  reinterpret_cast<Bf16x8*>(p.out + row * p.size)[v] = ToBf16(u);
}

}  // namespace

cudaError_t LaunchGateUp(const GateUpParams& params, cudaStream_t stream) {
  if (params.num_rows == 0) return cudaSuccess;
  if (params.size <= 0 || params.size % 8 != 0 || params.num_rows > 65535) {
    return cudaErrorInvalidValue;
  }
  const dim3 grid((params.size / 8 + kThreads - 1) / kThreads, params.num_rows);
  switch (params.activation) {
    case GateActivation::kSilu:
      return LaunchDependent(GateUpKernel<GateActivation::kSilu>, grid, kThreads, 0, stream,
                             params);
    case GateActivation::kGeluTanh:
      return LaunchDependent(GateUpKernel<GateActivation::kGeluTanh>, grid, kThreads, 0, stream,
                             params);
    case GateActivation::kGelu:
      return LaunchDependent(GateUpKernel<GateActivation::kGelu>, grid, kThreads, 0, stream,
                             params);
  }
  return cudaErrorInvalidValue;
}

}  // namespace penstock::kernels
