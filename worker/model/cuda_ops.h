#pragma once

// The transformer's operations on the GPU: bf16 weights, activations and KV, f32 sums. Everything
// is queued on one stream and nothing allocated after Create, so that a forward pass can be
// captured. Small numbers of rows take the GEMV and skinny kernels, others cuBLASLt.

#include <cuda_bf16.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cuda/gemm.h"
#include "kernels/cuda/paged_kv.h"
#include "worker/model/cuda_step.h"
#include "worker/model/cuda_weights.h"
#include "worker/model/device_memory.h"
#include "worker/model/model_spec.h"

namespace penstock {

// Layers that share block tables, and their cache.
struct CudaKvGroup {
  std::vector<int32_t> layers;  // of the model, ascending
  int32_t window = 0;
  int64_t block_elements = 0;  // bf16 numbers of one block
  __nv_bfloat16* cache = nullptr;
};

class CudaOps {
 public:
  using Weights = CudaWeights;
  struct Options {
    const ModelSpec& spec;
    const std::vector<CudaKvGroup>& groups;
    cudaStream_t stream = nullptr;
    int32_t block_size = 16;
    int32_t max_tokens = 0;
    int32_t max_rows = 0;
    int32_t num_multiprocessors = 1;
  };
  // Unimplemented names what of the model the kernels lack.
  static absl::Status CheckSpec(const ModelSpec& spec);
  // GPU bytes that Create takes.
  static int64_t MemoryBytes(const Options& options);
  static absl::StatusOr<std::unique_ptr<CudaOps>> Create(const Options& options);

  // step is packed into buffer, on the GPU. cos_sin: see rope_kv.h. last_tokens: [slots].
  struct StepView {
    const CudaStep* step = nullptr;
    const std::byte* buffer = nullptr;
    const float* cos_sin = nullptr;
    const int32_t* last_tokens = nullptr;
    int32_t num_splits = 1;  // of decode attention
  };
  // view.step must outlive the forward pass.
  void BeginStep(const StepView& view);
  int32_t PlanSplits(int32_t num_decode, int32_t max_seq_len) const;

  // Lets cuBLASLt choose its algorithms for steps of so many rows. Writes activations.
  absl::Status TuneLinears(const CudaWeights& weights, int32_t num_rows);

  // RunTransformer's operations.
  void Embed(const CudaMatrix& embedding, __nv_bfloat16* out);
  void RmsNorm(const __nv_bfloat16* x, const __nv_bfloat16* weight, __nv_bfloat16* out);
  void Qkv(const __nv_bfloat16* x, const CudaLayer& layer, __nv_bfloat16* qkv);
  void RopeAndCache(const __nv_bfloat16* qkv, const CudaLayer& layer, int32_t index,
                    __nv_bfloat16* queries);
  void Attend(const __nv_bfloat16* queries, int32_t index, __nv_bfloat16* out);
  void LinearAdd(const __nv_bfloat16* x, const CudaMatrix& w, __nv_bfloat16* y);
  void GatedLinear(const __nv_bfloat16* x, const CudaMatrix& gate, const CudaMatrix& up,
                   Activation activation, __nv_bfloat16* y);
  // The next RmsNorm into last() takes the rows from there.
  void GatherLast(const __nv_bfloat16* hidden, __nv_bfloat16* last);
  // logits() of the step's rows with logits.
  void Head(const CudaMatrix& head);

  __nv_bfloat16* hidden() { return hidden_.data(); }
  __nv_bfloat16* normed() { return normed_.data(); }
  __nv_bfloat16* qkv() { return qkv_.data(); }
  __nv_bfloat16* queries() { return queries_.data(); }
  __nv_bfloat16* attended() { return attended_.data(); }
  __nv_bfloat16* gated() { return gated_.data(); }
  __nv_bfloat16* last() { return last_.data(); }
  float* logits() { return logits_.data(); }                  // [num_last, vocab_size]
  float* logits_scratch() { return logits_scratch_.data(); }  // the same

  // The first error since the last call.
  absl::Status TakeStatus();

 private:
  struct LayerPlace {
    int32_t group = 0;
    int32_t index = 0;  // within the group
  };
  struct Sizes;

  explicit CudaOps(const Options& options);
  absl::Status Allocate();
  kernels::PagedKv KvOf(int32_t layer) const;
  template <typename T>
  const T* InStep(size_t offset) const {
    return reinterpret_cast<const T*>(view_.buffer + offset);
  }
  void Linear(const __nv_bfloat16* x, const CudaMatrix& w, int32_t num_rows,
              const __nv_bfloat16* residual, __nv_bfloat16* out, float* out_f32);
  void Note(cudaError_t error, const char* what);

  const Options options_;
  const ModelSpec& spec_;
  const cudaStream_t stream_;
  const int32_t heads_size_, kv_size_;
  std::vector<LayerPlace> places_;
  StepView view_;
  absl::Status status_;
  DeviceArray<std::byte> gemm_workspace_;
  std::unique_ptr<kernels::Gemm> gemm_;
  DeviceArray<__nv_bfloat16> hidden_, normed_, qkv_, queries_, attended_, gate_up_, gated_, last_;
  DeviceArray<float> logits_, logits_scratch_;
  DeviceArray<std::byte> attention_workspace_;
  DeviceArray<int32_t> attention_counters_;
};

}  // namespace penstock
