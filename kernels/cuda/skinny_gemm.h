#pragma once

// Linear layers for up to 64 rows (decode of that many sequences) on the tensor cores, bound by
// reading the weights once. Row-major weights, so that cuBLASLt can use the same ones for prefill.

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace penstock::kernels {

inline constexpr int kMaxSkinnyRows = 64;

struct SkinnyGemmParams {
  const __nv_bfloat16* x = nullptr;         // [num_rows, in_size]
  const __nv_bfloat16* weight = nullptr;    // [out_size, in_size]
  const __nv_bfloat16* bias = nullptr;      // [out_size]; null = none
  const __nv_bfloat16* residual = nullptr;  // [num_rows, out_size], added; null = none
  __nv_bfloat16* out = nullptr;             // [num_rows, out_size], or null with out_f32 (logits)
  float* out_f32 = nullptr;                 // [num_rows, out_size]
  int32_t num_rows = 0;                     // 1..kMaxSkinnyRows
  int32_t in_size = 0;                      // a multiple of 32
  int32_t out_size = 0;                     // any
};

[[nodiscard]] cudaError_t LaunchSkinnyGemm(const SkinnyGemmParams& params, cudaStream_t stream);

}  // namespace penstock::kernels
