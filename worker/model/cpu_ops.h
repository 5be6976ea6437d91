#pragma once

// The transformer's operations on the CPU: packed weights, f32 activations, paged f32 KV. One
// object per runner, used by its compute thread only. All buffers have their full size from the
// start, for max_tokens tokens a step and max_rows rows with logits.

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/linear.h"
#include "worker/model/cpu_step.h"
#include "worker/model/cpu_weights.h"
#include "worker/model/model_spec.h"

namespace penstock {

// Layers that share block tables, and their cache.
struct CpuKvGroup {
  std::vector<int32_t> layers;  // of the model, ascending
  int32_t window = 0;
  kernels::PagedKvLayout layout;
  float* cache = nullptr;
};

class CpuOps {
 public:
  using Weights = CpuWeights;
  using Buffer = float*;
  struct Options {
    const ModelSpec& spec;
    const kernels::CpuKernels& kernels;
    kernels::ThreadPool& pool;
    const std::vector<CpuKvGroup>& groups;
    int32_t max_tokens = 0;
    int32_t max_rows = 0;
  };
  explicit CpuOps(const Options& options);

  // step must outlive the forward pass.
  void BeginStep(const CpuStep& step);

  void Embed(const kernels::PackedMatrix& embedding, float* out);
  void RmsNorm(const float* x, const std::vector<float>& weight, float* out);
  void Qkv(const float* x, const CpuLayer& layer, float* qkv);
  void RopeAndCache(const float* qkv, const CpuLayer& layer, int32_t index, float* queries);
  void Attend(const float* queries, int32_t index, float* out);
  void LinearAdd(const float* x, const kernels::PackedMatrix& w, float* y);
  void GatedLinear(const float* x, const kernels::PackedMatrix& gate,
                   const kernels::PackedMatrix& up, Activation activation, float* y);
  void GatherLast(const float* hidden, float* last);
  // logits [count, vocab_size] of the rows [first, first + count) of last().
  void Head(const kernels::PackedMatrix& head, int32_t first, int32_t count, float* logits);

  float* hidden() { return hidden_.get(); }
  float* normed() { return normed_.get(); }
  float* qkv() { return qkv_.get(); }
  float* queries() { return queries_.get(); }
  float* attended() { return attended_.get(); }
  float* gated() { return gated_.get(); }
  float* last() { return last_.get(); }

 private:
  using Floats = std::unique_ptr<float, kernels::FreeDeleter>;
  struct LayerPlace {
    int32_t group = 0;
    int32_t index = 0;  // within the group
  };
  kernels::AttentionParams ParamsOf(const LayerPlace& place) const;
  void RopeToken(const float* qkv, const CpuLayer& layer, const LayerPlace& place, int32_t token,
                 float* queries);

  const ModelSpec& spec_;
  const std::vector<CpuKvGroup>& groups_;
  kernels::LinearContext context_;
  std::vector<kernels::Attention> attention_;  // per group
  std::vector<LayerPlace> places_;
  const CpuStep* step_ = nullptr;
  int64_t hidden_size_, heads_size_, kv_size_, inner_size_;
  Floats hidden_, normed_, qkv_, queries_, attended_, gated_, last_;
};

}  // namespace penstock
