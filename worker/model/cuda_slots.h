#pragma once

// What the GPU knows of each running sequence's sampling: parameters, biases, counts for penalties,
// and the last sampled token. Changes are gathered on the host and sent before the next sampling.

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cuda/sample.h"
#include "worker/engine/model_runner.h"
#include "worker/model/device_memory.h"

namespace penstock {

class CudaSlots {
 public:
  static int64_t MemoryBytes(int32_t max_num_seqs, int32_t vocab_size);
  static absl::StatusOr<std::unique_ptr<CudaSlots>> Create(int32_t max_num_seqs, int32_t vocab_size,
                                                           cudaStream_t stream);

  void Init(const SlotInit& init);
  // Queues what changed since the last call.
  absl::Status Send();
  // The slots' part of sampling.
  void FillParams(kernels::SampleParams* params) const;

  const SamplingParams& params(SlotId slot) const { return at(slot).params; }
  // Some ids are forbidden to this slot at this output index, by allowed ids or min_tokens.
  bool NeedsMask(SlotId slot, int32_t output_index) const;
  // Clears the forbidden ids' bits.
  void ApplyMask(SlotId slot, int32_t output_index, std::span<uint32_t> allowed) const;

  const int32_t* last_tokens() const { return last_tokens_.data(); }

 private:
  struct Slot {
    SamplingParams params;
    std::vector<uint16_t> counts;  // until sent
  };

  CudaSlots(int32_t vocab_size, cudaStream_t stream) : vocab_size_(vocab_size), stream_(stream) {}
  const Slot& at(SlotId slot) const { return slots_[static_cast<size_t>(Value(slot))]; }
  absl::Status SendBiases();

  const int32_t vocab_size_;
  const cudaStream_t stream_;
  std::vector<Slot> slots_;
  std::vector<kernels::SamplingSlot> host_;
  bool dirty_ = false;
  bool biases_dirty_ = false;
  std::vector<SlotId> counts_dirty_;
  DeviceArray<kernels::SamplingSlot> device_;
  DeviceArray<int32_t> last_tokens_;
  DeviceArray<uint16_t> counts_;  // [slots, vocab]
  DeviceArray<int32_t> bias_ids_;
  DeviceArray<float> bias_values_;
};

}  // namespace penstock
