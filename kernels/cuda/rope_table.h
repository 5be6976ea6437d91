#pragma once

// Cosines and sines of every position, once at start-up: what rope_kv.h reads.

#include <cuda_runtime_api.h>

#include <cstdint>

namespace penstock::kernels {

struct RopeTableParams {
  const float* inv_freq = nullptr;  // [half]
  float* cos_sin = nullptr;         // [num_positions, 2 * half]: cosines, then sines
  float factor = 1.0f;              // of both
  int32_t num_positions = 0;
  int32_t half = 0;
};

[[nodiscard]] cudaError_t LaunchRopeTable(const RopeTableParams& params, cudaStream_t stream);

}  // namespace penstock::kernels
