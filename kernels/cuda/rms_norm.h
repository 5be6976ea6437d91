#pragma once

// RMSNorm, alone or after adding a residual. Memory-bound: reads and writes each row once.

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace penstock::kernels {

// out = x' / sqrt(mean(x'^2) + eps) * weight, where x' = x + residual and residual := x'.
struct RmsNormParams {
  const __nv_bfloat16* x = nullptr;   // [num_rows, hidden], row stride x_stride
  __nv_bfloat16* residual = nullptr;  // [num_rows, hidden], updated in place; null = none
  // [num_rows]: which rows of x to take; null = all in order. Not with a residual.
  const int32_t* rows = nullptr;
  const __nv_bfloat16* weight = nullptr;  // [hidden]
  __nv_bfloat16* out = nullptr;           // [num_rows, hidden]; may be x, without rows
  int64_t x_stride = 0;                   // elements
  int32_t num_rows = 0;
  int32_t hidden = 0;  // a multiple of 8, at most 16384
  float eps = 1e-5f;
};

[[nodiscard]] cudaError_t LaunchRmsNorm(const RmsNormParams& params, cudaStream_t stream);

}  // namespace penstock::kernels
