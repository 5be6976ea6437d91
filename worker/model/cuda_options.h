#pragma once

// The door to the CUDA runner, free of CUDA's headers: builds without CUDA have the same functions,
// which say so.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/engine/model_runner.h"
#include "worker/model/model_spec.h"
#include "worker/model/weights.h"

namespace penstock {

struct CudaRunnerOptions {
  int32_t device = 0;
  double gpu_memory_utilization = 0.92;  // of the card, all of ours together
  int64_t kv_cache_bytes = 0;            // 0 = what gpu_memory_utilization leaves
  int32_t max_model_len = 0;             // 0 = the model's, as far as the cache holds it
  int32_t block_size = 16;               // tokens: 16, 32 or 64
  int32_t max_num_seqs = 256;
  int32_t max_num_batched_tokens = 8192;
  bool use_graphs = true;  // for decode steps
  // Not empty: used instead of measuring.
  std::vector<RunnerInfo::ChunkTime> chunk_times;
  // Bytes done and in all, while loading. May be null.
  std::function<void(int64_t done, int64_t total)> progress;
  // Called by Collect with each sampled row's raw logits (checks of numbers). Costs a copy.
  std::function<void(SlotId slot, int32_t output_index, std::span<const float>)> logits_hook;
};

// OK when the GPU can be used; else says what is missing: a driver, a card, a newer one.
absl::Status CheckCudaDevice(int32_t device);

// weights is used during the call only. InvalidArgument names option, value and limit;
// ResourceExhausted shows what a model that does not fit needs and what there is.
absl::StatusOr<std::unique_ptr<ModelRunner>> CreateCudaRunner(const ModelSpec& spec,
                                                              const WeightSource& weights,
                                                              CudaRunnerOptions options);

}  // namespace penstock
