#pragma once

// A ModelRunner without a model: for tests of everything above the seam and for load tests of the
// router (`--backend fake`). Tokens are a pure function of the sequence's tokens, its seed and the
// position, or follow a script; step times are made up.
//
// It emulates KV blocks: each position of a block holds a running hash of the tokens up to it, read
// from the block of the position before, as attention would. A wrong block table, a block reused
// too early or a bad prefix hit therefore changes tokens; with verify on, it is an error at once.
// The engine thread is the only caller; ReleaseHang may come from any thread.

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/engine/model_runner.h"

namespace penstock {

struct FakeRunnerOptions {
  enum class Mode {
    kHash,    // pseudo-random ids in [first_id, vocab_size)
    kEcho,    // the prompt's ids, then eos_id
    kScript,  // scripts[seed % scripts.size()], then eos_id
  };
  Mode mode = Mode::kHash;
  std::vector<std::vector<TokenId>> scripts;
  TokenId first_id = 0;
  TokenId eos_id = 0;  // what kEcho and kScript end with
  int32_t vocab_size = 1000;
  int32_t max_model_len = 8192;
  int32_t block_size = 16;
  int32_t max_num_seqs = 256;
  int32_t max_num_batched_tokens = 2048;
  int32_t num_blocks = 0;        // of each group, block 0 included; 0 = enough for all sequences
  std::vector<int32_t> windows;  // KV groups by window (0 = full); empty = one full group
  std::vector<RunnerInfo::ChunkTime> chunk_times;  // empty = from the step times below

  int64_t step_us = 0;          // each step
  int64_t token_us = 0;         // and each of its tokens
  int64_t start_ms = 0;         // Create takes this long
  int64_t fail_at_step = 0;     // Collect of this step is an error; 0 = never
  int64_t hang_at_step = 0;     // Collect of this step waits for ReleaseHang or destruction
  int64_t nonfinite_seed = -1;  // requests with this seed get nonfinite logits ...
  int32_t nonfinite_index = 0;  // ... at this output index
  bool verify = false;          // check every row against the contract (slow)

  // Waits so many nanoseconds; null = really sleep.
  std::function<void(int64_t)> sleep_ns;
  std::function<int64_t()> now_ns;  // null = steady clock
};

// "mode=echo,step-us=5000,vocab-size=49152": names as above with dashes. scripts=FILE reads one
// script a line, ids separated by blanks. InvalidArgument names the part that is wrong.
absl::StatusOr<FakeRunnerOptions> ParseFakeRunnerOptions(std::string_view text,
                                                         FakeRunnerOptions defaults = {});

class FakeRunner : public ModelRunner {
 public:
  static absl::StatusOr<std::unique_ptr<FakeRunner>> Create(FakeRunnerOptions options);
  ~FakeRunner() override;

  const RunnerInfo& info() const override { return info_; }
  void InitSlot(const SlotInit& init) override;
  absl::Status LaunchForward(const StepInput& input) override;
  absl::Status LaunchSample(std::span<const RowMask> masks) override;
  absl::StatusOr<const StepOutput*> Collect() override;

  // Ends the hang at hang_at_step.
  void ReleaseHang();

 private:
  struct Slot {
    SamplingParams sampling;
    std::vector<TokenId> history;  // prompt, replayed and sampled ids
    int32_t num_prompt = 0;
    uint64_t state = 0;      // hash after the last row's last position
    uint64_t last_step = 0;  // the last step with a row of it
  };
  struct SampledRow {
    SlotId slot = kPaddingSlot;
    int32_t output_index = 0;
  };
  // One block's emulated content.
  struct Block {
    std::vector<uint64_t> hashes;  // one per position
    uint64_t writer_step = 0;
    SlotId writer = kPaddingSlot;
    uint64_t reader_step = 0;  // last step whose rows read or wrote it
    SlotId reader = kPaddingSlot;
  };
  struct Flight {
    uint64_t step_id = 0;
    int64_t done_ns = 0;
    StepOutput output;
  };

  explicit FakeRunner(FakeRunnerOptions options);
  absl::Status RunRow(const StepInput& input, size_t row_index);
  absl::Status VerifyRow(const StepInput& input, size_t row_index) const;
  absl::Status VerifyBlocks(const StepInput& input, size_t row_index, size_t group) const;
  // First position that a row starting at `position` reads.
  int32_t FirstRead(size_t group, int32_t position) const;
  TokenId Sample(const Slot& slot, int32_t output_index) const;
  TokenId NextOf(const Slot& slot, int32_t output_index, uint64_t draw) const;
  void EmitRow(const SampledRow& row, std::span<const RowMask> masks, StepOutput* output);
  void EmitLogprobs(const Slot& slot, TokenId token, StepOutput* output) const;
  Flight& flight(uint64_t step) { return flights_[step % kMaxStepsInFlight]; }
  const Slot& slot(SlotId id) const { return slots_[static_cast<size_t>(Value(id))]; }

  const FakeRunnerOptions options_;
  RunnerInfo info_;
  std::vector<Slot> slots_;
  std::vector<std::vector<Block>> groups_;
  std::vector<SampledRow> sampled_;  // of the step between its two launches
  std::array<Flight, kMaxStepsInFlight> flights_;
  uint64_t launched_ = 0;   // step id of the last LaunchForward
  uint64_t collected_ = 0;  // step id of the last Collect
  int64_t busy_until_ns_ = 0;

  std::mutex hang_mutex_;
  std::condition_variable hang_released_;
  bool hang_over_ = false;
};

}  // namespace penstock
