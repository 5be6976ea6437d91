#pragma once

// The ModelRunner on the CPU. Create loads and repacks the weights, takes the KV cache's memory and
// measures the chunk-time table. Steps run on a compute thread of its own with a pool of helpers;
// the engine thread only queues them and waits in Collect.

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "worker/engine/model_runner.h"
#include "worker/model/cpu_ops.h"
#include "worker/model/cpu_weights.h"
#include "worker/model/model_spec.h"
#include "worker/model/sampler.h"
#include "worker/model/weights.h"

namespace penstock {

struct CpuRunnerOptions {
  int32_t num_threads = 0;     // 0 = one per usable core
  int64_t kv_cache_bytes = 0;  // 0 = a quarter of the machine's memory, at most what all slots need
  int32_t max_model_len = 0;   // 0 = the model's, as far as the cache holds it
  int32_t block_size = 16;     // tokens: 16, 32 or 64
  int32_t max_num_seqs = 32;
  int32_t max_num_batched_tokens = 128;
  std::optional<kernels::Isa> isa;  // none = the machine's best
  // Not empty: used instead of measuring.
  std::vector<RunnerInfo::ChunkTime> chunk_times;
  LoadProgress progress;  // may be null
};

class CpuRunner : public ModelRunner {
 public:
  // weights is used during the call only. InvalidArgument names option, value and limit.
  static absl::StatusOr<std::unique_ptr<CpuRunner>> Create(const ModelSpec& spec,
                                                           const WeightSource& weights,
                                                           CpuRunnerOptions options);
  ~CpuRunner() override;

  const RunnerInfo& info() const override { return info_; }
  void InitSlot(const SlotInit& init) override;
  absl::Status LaunchForward(const StepInput& input) override;
  absl::Status LaunchSample(std::span<const RowMask> masks) override;
  absl::StatusOr<const StepOutput*> Collect() override;

  // Called on the compute thread with each row's raw logits before it is sampled (checks of
  // numbers). Set it before the first step.
  using LogitsHook = std::function<void(SlotId slot, int32_t output_index, std::span<const float>)>;
  void set_logits_hook(LogitsHook hook) { logits_hook_ = std::move(hook); }

 private:
  struct Slot {
    SamplerState sampler;
    TokenId last_token = 0;
  };
  struct SampledRow {
    SlotId slot = kPaddingSlot;
    int32_t output_index = 0;
    int32_t last = 0;  // its row in CpuOps::last()
    SampledToken result;
    std::vector<TokenLogprob> logprobs;
  };
  enum class Stage { kFree, kForward, kForwardThenSample, kWaitSample, kSample, kDone };
  struct Flight {
    Stage stage = Stage::kFree;  // guarded by mutex_; kForward and kSample are the compute thread's
    StepInput input;
    std::vector<RowMask> masks;
    StepOutput output;
  };
  struct Unmapper {
    size_t bytes = 0;
    void operator()(float* p) const;
  };
  using Mapping = std::unique_ptr<float, Unmapper>;

  CpuRunner(const ModelSpec& spec, CpuRunnerOptions options, kernels::Isa isa);
  absl::Status CheckOptions() const;
  absl::Status PlanCache();
  absl::Status MapCache();
  void MeasureChunks();
  void ComputeMain();
  void RunForward(const StepInput& input);
  void RunSample(Flight& flight);
  void SampleRows(std::span<const RowMask> masks, size_t first, size_t count);
  void WriteOutput(StepOutput* output);
  Slot& slot(SlotId id) { return slots_[static_cast<size_t>(Value(id))]; }

  const ModelSpec spec_;
  const CpuRunnerOptions options_;
  const kernels::CpuKernels& kernels_;
  kernels::ThreadPool pool_;
  CpuWeights weights_;
  RopeTable rope_;
  RunnerInfo info_;
  std::vector<CpuKvGroup> groups_;
  std::vector<Mapping> caches_;
  std::unique_ptr<CpuOps> ops_;
  std::vector<Sampler> samplers_;  // per thread of the pool
  LogitsHook logits_hook_;

  std::vector<Slot> slots_;
  CpuStep step_;                     // the compute thread's
  std::vector<SampledRow> sampled_;  // of the step between its two stages; grows, is never shrunk
  size_t num_sampled_ = 0;
  std::vector<float> logits_;  // [kHeadRows, vocab]

  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<Flight, kMaxStepsInFlight> flights_;
  StepOutput collected_output_;
  uint64_t launched_ = 0;   // flights launched; the engine thread's
  uint64_t collected_ = 0;  // flights collected; the engine thread's
  bool stop_ = false;
  std::thread compute_;
};

}  // namespace penstock
