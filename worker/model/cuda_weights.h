#pragma once

// A model's weights on the GPU: bf16, row-major, in one allocation. Projections that read the same
// input lie one behind the other, so that one product computes them all.

#include <cuda_bf16.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cpu/thread_pool.h"
#include "worker/model/device_memory.h"
#include "worker/model/model_spec.h"
#include "worker/model/weights.h"

namespace penstock {

struct CudaMatrix {
  const __nv_bfloat16* weight = nullptr;  // [num_outputs, num_inputs]
  const __nv_bfloat16* bias = nullptr;    // [num_outputs]; null = none
  int32_t num_outputs = 0;
  int32_t num_inputs = 0;
};

struct CudaLayer {
  const __nv_bfloat16* input_norm = nullptr;  // [hidden]
  const __nv_bfloat16* mlp_norm = nullptr;    // [hidden]
  const __nv_bfloat16* q_norm = nullptr;      // [head_dim]; null = none
  const __nv_bfloat16* k_norm = nullptr;
  CudaMatrix qkv;
  CudaMatrix o;
  CudaMatrix gate;  // up's rows (and bias) follow gate's
  CudaMatrix up;
  CudaMatrix down;
};

struct CudaWeights {
  DeviceArray<__nv_bfloat16> storage;
  CudaMatrix embedding;
  CudaMatrix untied_head;
  std::vector<CudaLayer> layers;
  const __nv_bfloat16* final_norm = nullptr;

  const CudaMatrix& head() const { return untied_head.weight != nullptr ? untied_head : embedding; }
  int64_t bytes() const { return static_cast<int64_t>(storage.bytes()); }
};

// GPU bytes that LoadCudaWeights takes.
int64_t CudaWeightBytes(const ModelSpec& spec);

// Copies (and converts, where the file is not bf16) through page-locked buffers on stream.
// progress: bytes on the GPU so far and in all; may be null.
absl::StatusOr<CudaWeights> LoadCudaWeights(const ModelSpec& spec, const WeightSource& source,
                                            kernels::ThreadPool& pool, cudaStream_t stream,
                                            const std::function<void(int64_t, int64_t)>& progress);

}  // namespace penstock
