#pragma once

// Linear layers for a handful of rows (decode of up to 8 sequences) on CUDA cores: bound by reading
// the weights once. Larger row counts belong to the tensor cores (skinny_gemm.h).

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace penstock::kernels {

inline constexpr int kMaxGemvRows = 8;

struct GemvParams {
  const __nv_bfloat16* x = nullptr;         // [num_rows, in_size]
  const __nv_bfloat16* weight = nullptr;    // [out_size, in_size]
  const __nv_bfloat16* bias = nullptr;      // [out_size]; null = none
  const __nv_bfloat16* residual = nullptr;  // [num_rows, out_size], added; null = none
  __nv_bfloat16* out = nullptr;             // [num_rows, out_size], or null with out_f32 (logits)
  float* out_f32 = nullptr;                 // [num_rows, out_size]
  int32_t num_rows = 0;                     // 1..kMaxGemvRows
  int32_t in_size = 0;                      // a multiple of 8
  int32_t out_size = 0;
};

[[nodiscard]] cudaError_t LaunchGemv(const GemvParams& params, cudaStream_t stream);

}  // namespace penstock::kernels
