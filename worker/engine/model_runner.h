#pragma once

// The one seam between the engine and what computes: CUDA, CPU and fake runners implement it.
//
// Asynchronous: at most two steps are in flight. For each step the engine calls LaunchForward, then
// LaunchSample, and later Collect, in step order. Collect returns the oldest launched step. The
// engine thread is the only caller; a runner may compute on threads of its own.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/engine/ids.h"
#include "worker/engine/sampling.h"
#include "worker/engine/step.h"

namespace penstock {

inline constexpr int kMaxStepsInFlight = 2;

// Layers that share a block table: all with full attention, or all with one window size.
struct KvGroupInfo {
  int32_t num_layers = 0;
  int32_t window = 0;      // 0 = full attention
  int32_t num_blocks = 0;  // including block 0, which is for padding
  int64_t bytes_per_block = 0;
};

struct RunnerInfo {
  std::string device;         // "CPU (2 threads, AVX2)", "NVIDIA H200 ..."
  int32_t vocab_size = 0;     // ids >= this never occur
  int32_t max_model_len = 0;  // positions that fit the model and the KV cache
  int32_t block_size = 16;    // tokens per KV block
  int32_t max_num_seqs = 0;   // usable slots are 1..max_num_seqs
  int32_t max_num_batched_tokens = 0;
  std::vector<KvGroupInfo> kv_groups;
  // Predicted microseconds of a step of so many prefill tokens, ascending in tokens; measured once
  // at start-up. The size of a prefill chunk is a pure function of this table.
  struct ChunkTime {
    int32_t tokens = 0;
    int64_t micros = 0;
  };
  std::vector<ChunkTime> chunk_times;
  int64_t weight_bytes = 0;
  int64_t kv_bytes = 0;
};

// A sequence taking a slot, before its first row. Penalties count prompt and replayed output here.
struct SlotInit {
  SlotId slot = kPaddingSlot;
  const SamplingParams* sampling = nullptr;  // valid during the call
  std::span<const TokenId> prompt_ids;       // valid during the call
  std::span<const TokenId> output_ids;       // already emitted (resumed or preempted requests)
};

// Which tokens a row may sample, one bit per id (bit i of word i/32), provided by a grammar.
struct RowMask {
  SlotId slot = kPaddingSlot;
  std::span<const uint32_t> allowed;  // valid until Collect of this step
};

class ModelRunner {
 public:
  virtual ~ModelRunner() = default;
  virtual const RunnerInfo& info() const = 0;

  // The slot is free or its previous owner's last step was collected.
  virtual void InitSlot(const SlotInit& init) = 0;
  // Computes the rows' KV and logits. input may be reused when this returns.
  virtual absl::Status LaunchForward(const StepInput& input) = 0;
  // Samples the same step's rows with output_index >= 0. A mask may arrive between the two
  // launches.
  virtual absl::Status LaunchSample(std::span<const RowMask> masks) = 0;
  // Waits for the oldest step in flight. An error ends the process (see style: CUDA faults).
  // The result is valid until the next Collect.
  virtual absl::StatusOr<const StepOutput*> Collect() = 0;
};

}  // namespace penstock
