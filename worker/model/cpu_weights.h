#pragma once

// A model's weights as the CPU kernels want them: read once through a WeightSource, repacked,
// still quantised. Immutable afterwards; the source is not needed any more.

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/thread_pool.h"
#include "worker/model/model_spec.h"
#include "worker/model/weights.h"

namespace penstock {

struct CpuLayer {
  std::vector<float> input_norm;
  std::vector<float> mlp_norm;
  std::vector<float> q_norm;  // [head_dim]; empty = none
  std::vector<float> k_norm;
  kernels::PackedMatrix q, k, v, o;
  kernels::PackedMatrix gate, up, down;
};

struct CpuWeights {
  kernels::PackedMatrix embedding;    // also the head when that is tied
  kernels::PackedMatrix untied_head;  // no data when tied
  std::vector<float> final_norm;
  std::vector<CpuLayer> layers;

  const kernels::PackedMatrix& head() const {
    return untied_head.data != nullptr ? untied_head : embedding;
  }
  int64_t bytes() const;
};

// done and total in bytes of the packed weights; called by the loading thread, last with done ==
// total.
using LoadProgress = std::function<void(int64_t done, int64_t total)>;

// NotFound or InvalidArgument names the tensor, its shape and the expected one.
absl::StatusOr<CpuWeights> LoadCpuWeights(const ModelSpec& spec, const WeightSource& source,
                                          kernels::ThreadPool& pool, const LoadProgress& progress);

}  // namespace penstock
