#pragma once

// The gated activation between the two halves of an MLP.

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace penstock::kernels {

enum class GateActivation { kSilu, kGeluTanh, kGelu };

// out = act(gate) * up; gate_up rows hold the gate, then the up projection.
struct GateUpParams {
  const __nv_bfloat16* gate_up = nullptr;  // [num_rows, 2 * size]
  __nv_bfloat16* out = nullptr;            // [num_rows, size]
  int32_t num_rows = 0;
  int32_t size = 0;  // a multiple of 8
  GateActivation activation = GateActivation::kSilu;
};

[[nodiscard]] cudaError_t LaunchGateUp(const GateUpParams& params, cudaStream_t stream);

}  // namespace penstock::kernels
