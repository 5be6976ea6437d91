#include "worker/model/cuda_slots.h"

#include <algorithm>

#include "common/base/check.h"

namespace penstock {
namespace {

bool HasPenalties(const SamplingParams& p) {
  return p.presence_penalty != 0 || p.frequency_penalty != 0 || p.repetition_penalty != 1;
}

// Counts of prompt and output as the sampling kernel keeps them.
std::vector<uint16_t> CountsOf(const SlotInit& init, int32_t vocab_size) {
  std::vector<uint16_t> counts(static_cast<size_t>(vocab_size), 0);
  for (const TokenId id : init.prompt_ids) counts[static_cast<size_t>(id)] |= kernels::kInPrompt;
  for (const TokenId id : init.output_ids) {
    uint16_t& count = counts[static_cast<size_t>(id)];
    if ((count & (kernels::kInPrompt - 1)) < kernels::kInPrompt - 1) ++count;
  }
  return counts;
}

}  // namespace

int64_t CudaSlots::MemoryBytes(int32_t max_num_seqs, int32_t vocab_size) {
  return (int64_t{max_num_seqs} + 1) *
         (vocab_size * int64_t{sizeof(uint16_t)} + int64_t{sizeof(kernels::SamplingSlot)} + 4);
}

absl::StatusOr<std::unique_ptr<CudaSlots>> CudaSlots::Create(int32_t max_num_seqs,
                                                             int32_t vocab_size,
                                                             cudaStream_t stream) {
  std::unique_ptr<CudaSlots> slots(new CudaSlots(vocab_size, stream));
  const auto count = static_cast<size_t>(max_num_seqs) + 1;
  slots->slots_.resize(count);
  slots->host_.resize(count);
  ASSIGN_OR_RETURN(slots->device_, AllocateDevice<kernels::SamplingSlot>(count, "sampling slots"));
  ASSIGN_OR_RETURN(slots->last_tokens_, AllocateDevice<int32_t>(count, "sampling slots"));
  ASSIGN_OR_RETURN(slots->counts_, AllocateDevice<uint16_t>(count * static_cast<size_t>(vocab_size),
                                                            "penalty counts (--max-num-seqs)"));
  RETURN_IF_ERROR(CudaStatus(
      cudaMemsetAsync(slots->last_tokens_.data(), 0, slots->last_tokens_.bytes(), stream),
      "clearing sampling slots"));
  slots->dirty_ = true;
  return slots;
}

void CudaSlots::Init(const SlotInit& init) {
  CHECK(init.slot != kPaddingSlot);
  const auto index = static_cast<size_t>(Value(init.slot));
  const SamplingParams& p = *init.sampling;
  Slot& slot = slots_[index];
  if (!p.logit_bias.empty() || !slot.params.logit_bias.empty()) biases_dirty_ = true;
  slot.params = p;
  const bool penalties = HasPenalties(p);
  host_[index] = {.temperature = p.temperature,
                  .top_p = p.top_p,
                  .min_p = p.min_p,
                  .presence_penalty = p.presence_penalty,
                  .frequency_penalty = p.frequency_penalty,
                  .repetition_penalty = p.repetition_penalty,
                  .top_k = p.top_k,
                  .num_logprobs = p.top_logprobs,
                  .choice = p.choice,
                  .use_counts = static_cast<uint16_t>(penalties ? 1 : 0),
                  .processed_logprobs = static_cast<uint16_t>(p.processed_logprobs ? 1 : 0),
                  .seed = p.seed};
  dirty_ = true;
  if (penalties) {
    slot.counts = CountsOf(init, vocab_size_);
    counts_dirty_.push_back(init.slot);
  }
}

absl::Status CudaSlots::Send() {
  if (!dirty_) return absl::OkStatus();
  if (biases_dirty_) RETURN_IF_ERROR(SendBiases());
  // Pageable memory: these calls return when the source has been read. Both are rare.
  for (const SlotId id : counts_dirty_) {
    Slot& slot = slots_[static_cast<size_t>(Value(id))];
    uint16_t* const row = counts_.data() + static_cast<int64_t>(Value(id)) * vocab_size_;
    RETURN_IF_ERROR(
        CudaStatus(cudaMemcpyAsync(row, slot.counts.data(), slot.counts.size() * sizeof(uint16_t),
                                   cudaMemcpyHostToDevice, stream_),
                   "sending penalty counts"));
  }
  counts_dirty_.clear();
  dirty_ = false;
  return CudaStatus(
      cudaMemcpyAsync(device_.data(), host_.data(), host_.size() * sizeof(kernels::SamplingSlot),
                      cudaMemcpyHostToDevice, stream_),
      "sending sampling parameters");
}

// All slots' biases one behind the other.
absl::Status CudaSlots::SendBiases() {
  std::vector<int32_t> ids;
  std::vector<float> values;
  for (size_t i = 0; i < slots_.size(); ++i) {
    host_[i].bias_begin = static_cast<int32_t>(ids.size());
    for (const auto& [id, value] : slots_[i].params.logit_bias) {
      if (id < 0 || id >= vocab_size_) continue;
      ids.push_back(id);
      values.push_back(value);
    }
    host_[i].bias_end = static_cast<int32_t>(ids.size());
  }
  if (ids.size() > bias_ids_.size()) {
    const size_t count = std::max<size_t>(1024, 2 * ids.size());
    ASSIGN_OR_RETURN(bias_ids_, AllocateDevice<int32_t>(count, "logit biases"));
    ASSIGN_OR_RETURN(bias_values_, AllocateDevice<float>(count, "logit biases"));
  }
  biases_dirty_ = false;
  if (ids.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(bias_ids_.data(), ids.data(), ids.size() * 4,
                                             cudaMemcpyHostToDevice, stream_),
                             "sending logit biases"));
  RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(bias_values_.data(), values.data(), values.size() * 4,
                                             cudaMemcpyHostToDevice, stream_),
                             "sending logit biases"));
  return absl::OkStatus();
}

void CudaSlots::FillParams(kernels::SampleParams* params) const {
  params->slots = device_.data();
  params->counts = counts_.data();
  params->bias_ids = bias_ids_.data();
  params->bias_values = bias_values_.data();
  params->last_tokens = last_tokens_.data();
}

bool CudaSlots::NeedsMask(SlotId slot, int32_t output_index) const {
  const SamplingParams& p = params(slot);
  return !p.allowed_token_ids.empty() ||
         (output_index < p.min_tokens && !p.eos_and_stop_ids.empty());
}

void CudaSlots::ApplyMask(SlotId slot, int32_t output_index, std::span<uint32_t> allowed) const {
  const SamplingParams& p = params(slot);
  const auto known = [this](TokenId id) { return id >= 0 && id < vocab_size_; };
  if (!p.allowed_token_ids.empty()) {
    std::vector<uint32_t> listed(allowed.size(), 0);
    for (const TokenId id : p.allowed_token_ids) {
      if (known(id)) listed[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
    }
    for (size_t i = 0; i < allowed.size(); ++i) allowed[i] &= listed[i];
  }
  if (output_index >= p.min_tokens) return;
  for (const TokenId id : p.eos_and_stop_ids) {
    if (known(id)) allowed[static_cast<size_t>(id) / 32] &= ~(1u << (id % 32));
  }
}

}  // namespace penstock
