#pragma once

// The ModelRunner on one NVIDIA GPU. Create loads the weights, takes the KV cache's memory,
// captures the decode graphs and measures the chunk-time table. Everything is queued on one stream
// by the engine thread: a step is a copy of its packed input, the forward pass (a graph for decode
// steps), sampling, and a copy of the tokens back. Sampled tokens stay on the GPU too, so that the
// next step is queued before they are known.

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "kernels/cuda/sample.h"
#include "worker/engine/model_runner.h"
#include "worker/model/cuda_device.h"
#include "worker/model/cuda_ops.h"
#include "worker/model/cuda_options.h"
#include "worker/model/cuda_slots.h"
#include "worker/model/cuda_step.h"
#include "worker/model/cuda_weights.h"
#include "worker/model/device_memory.h"

namespace penstock {

class CudaRunner : public ModelRunner {
 public:
  static absl::StatusOr<std::unique_ptr<CudaRunner>> Create(const ModelSpec& spec,
                                                            const WeightSource& weights,
                                                            CudaRunnerOptions options);
  ~CudaRunner() override;

  const RunnerInfo& info() const override { return info_; }
  void InitSlot(const SlotInit& init) override;
  absl::Status LaunchForward(const StepInput& input) override;
  absl::Status LaunchSample(std::span<const RowMask> masks) override;
  absl::StatusOr<const StepOutput*> Collect() override;

 private:
  // What sampling gives for a row, as one piece of GPU memory that one copy brings back: tokens and
  // flags of all rows first, then what only logprobs need.
  struct ResultLayout {
    size_t tokens = 0, nonfinite = 0, ranks = 0, logprob_ids = 0, logprobs = 0;
    size_t short_bytes = 0, bytes = 0;
  };
  struct Flight {
    bool launched = false;
    uint64_t step_id = 0;
    CudaStep step;
    PinnedArray<std::byte> input;
    PinnedArray<std::byte> result;
    PinnedArray<uint32_t> masks;  // [rows, words], then int32 [rows]; taken at first use
    bool has_logprobs = false;
    std::vector<float> logits;  // with a hook
    cudaEvent_t done = nullptr;
  };

  CudaRunner(const ModelSpec& spec, CudaRunnerOptions options, const CudaDevice& device);
  absl::Status CheckOptions() const;
  void PlanGroups();
  CudaOps::Options OpsOptions() const;
  absl::Status CheckFits() const;
  absl::Status TakeCache();
  absl::Status TakeBuffers();
  absl::Status MakeRope();
  absl::Status CaptureGraphs();
  absl::Status MeasureChunks();

  int32_t BucketOf(const CudaStepShape& shape) const;
  absl::Status Forward(const CudaStep& step, int32_t num_splits);
  absl::Status CopyMasks(Flight& flight, std::span<const RowMask> masks,
                         kernels::SampleParams* params);
  absl::Status WithShape(const absl::Status& status, const Flight& flight) const;
  void WriteOutput(Flight& flight);
  ResultLayout ResultsOf(int32_t rows) const;

  const ModelSpec spec_;
  const CudaRunnerOptions options_;
  const CudaDevice device_;
  cudaStream_t stream_ = nullptr;
  RunnerInfo info_;
  CudaWeights weights_;
  std::vector<CudaKvGroup> groups_;
  std::vector<DeviceArray<__nv_bfloat16>> caches_;
  std::unique_ptr<CudaOps> ops_;
  std::unique_ptr<CudaSlots> slots_;
  DeviceArray<float> cos_sin_;
  DeviceArray<std::byte> step_buffer_;
  DeviceArray<std::byte> result_buffer_;
  DeviceArray<uint32_t> mask_buffer_;
  std::map<int32_t, cudaGraphExec_t> graphs_;  // by decode bucket
  std::array<Flight, kMaxStepsInFlight> flights_;
  StepOutput output_;
  uint64_t launched_ = 0;
  uint64_t collected_ = 0;
};

}  // namespace penstock
