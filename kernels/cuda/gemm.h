#pragma once

// Dense matrix products by cuBLASLt, for what is too large for gemv.h and skinny_gemm.h. The
// library is opened at run time: the same binary runs on machines without it. One object per thread
// and device.

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace penstock::kernels {

struct GemmParams {
  const __nv_bfloat16* x = nullptr;         // [num_rows, in_size]
  const __nv_bfloat16* weight = nullptr;    // [out_size, in_size]
  const __nv_bfloat16* bias = nullptr;      // [out_size]; null = none
  const __nv_bfloat16* residual = nullptr;  // null, or out: the product is added to it
  __nv_bfloat16* out = nullptr;             // [num_rows, out_size], or null with out_f32 (logits)
  float* out_f32 = nullptr;                 // [num_rows, out_size]; without bias and residual
  int32_t num_rows = 0;
  int32_t in_size = 0;
  int32_t out_size = 0;
};

class Gemm {
 public:
  // What a product may use; it belongs to the caller, one for all products of a stream.
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;

  // Opens the library. Null and a reason when it is missing or too old.
  static std::unique_ptr<Gemm> Create(void* workspace, std::string* error);
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  // Uses the algorithm that Tune chose for this shape, else the library's first choice. Empty on
  // success, else what went wrong.
  [[nodiscard]] std::string Run(const GemmParams& params, cudaStream_t stream);

  // Times the library's best guesses for the shape of params, at start-up, and keeps the fastest.
  // weights: several matrices of the shape, taken in turn, so that the cache is as cold as in use.
  // Writes params' output.
  [[nodiscard]] std::string Tune(const GemmParams& params,
                                 std::span<const __nv_bfloat16* const> weights,
                                 cudaStream_t stream);

  size_t version() const;

 private:
  struct Impl;
  explicit Gemm(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock::kernels
