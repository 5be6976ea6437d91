#pragma once

// Drives a CpuRunner as the engine would, for tests: sequences with block tables of their own,
// steps of any mix, the raw logits of each sampled row.

#include <map>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "worker/model/cpu_runner.h"

namespace penstock {

struct TestSequence {
  SlotId slot{1};
  std::vector<TokenId> ids;  // known tokens
  int32_t computed = 0;      // positions whose KV is there
  int32_t output_index = 0;  // of the next sampled token
  std::vector<BlockId> blocks;
};

// A part of a step: the next `tokens` positions of a sequence.
struct StepPart {
  TestSequence* sequence;
  int32_t tokens;
  bool sample = false;
  bool last_sampled = false;  // the input is the slot's last token, unknown to the host
};

class RunnerHarness {
 public:
  using Logits =
      std::map<std::pair<int32_t, int32_t>, std::vector<float>>;  // by slot, output index

  explicit RunnerHarness(std::unique_ptr<CpuRunner> cpu_runner) : runner(std::move(cpu_runner)) {
    runner->set_logits_hook([this](SlotId slot, int32_t index, std::span<const float> row) {
      logits[{Value(slot), index}].assign(row.begin(), row.end());
    });
  }

  TestSequence Begin(int32_t slot, std::vector<TokenId> ids, const SamplingParams& sampling) {
    TestSequence s = {.slot = SlotId{slot}, .ids = std::move(ids)};
    runner->InitSlot({.slot = s.slot, .sampling = &sampling, .prompt_ids = s.ids});
    return s;
  }

  void Launch(const std::vector<StepPart>& parts, std::span<const RowMask> masks = {}) {
    StepInputBuilder builder;
    StepInput input;
    const size_t groups = runner->info().kv_groups.size();
    builder.Begin(++step_id_, static_cast<int32_t>(groups));
    for (const StepPart& part : parts) {
      TestSequence& s = *part.sequence;
      const int32_t end = s.computed + part.tokens;
      while (static_cast<int32_t>(s.blocks.size()) * runner->info().block_size < end) {
        s.blocks.push_back(BlockId{next_block_++});
      }
      StepRow row = {.slot = s.slot, .num_tokens = part.tokens, .start_position = s.computed};
      if (part.sample) {
        row.output_index = s.output_index++;
        row.logits = LogitsKind::kLast;
      }
      const std::vector<std::span<const BlockId>> tables(groups, s.blocks);
      std::span<const TokenId> ids;
      if (!part.last_sampled) {
        ids = std::span<const TokenId>(s.ids).subspan(static_cast<size_t>(s.computed),
                                                      static_cast<size_t>(part.tokens));
      }
      builder.AddRow(row, ids, tables);
      s.computed = end;
    }
    builder.Finish(&input);
    ASSERT_TRUE(runner->LaunchForward(input).ok());
    ASSERT_TRUE(runner->LaunchSample(masks).ok());
  }

  StepOutput Collect() {
    auto output = runner->Collect();
    EXPECT_TRUE(output.ok());
    return **output;
  }

  StepOutput Run(const std::vector<StepPart>& parts) {
    Launch(parts);
    return Collect();
  }

  // Prefills in chunks, then generates: the tokens.
  std::vector<TokenId> Generate(TestSequence& s, int32_t chunk, int32_t count) {
    std::vector<TokenId> tokens;
    for (int32_t i = 0; i < count;) {
      const int32_t left = static_cast<int32_t>(s.ids.size()) - s.computed;
      const bool sample = left <= chunk;
      const StepOutput out = Run({{&s, std::min(left, chunk), sample}});
      if (!sample) continue;
      s.ids.push_back(out.tokens[0]);
      tokens.push_back(out.tokens[0]);
      ++i;
    }
    return tokens;
  }

  std::unique_ptr<CpuRunner> runner;
  Logits logits;

 private:
  uint64_t step_id_ = 0;
  int32_t next_block_ = 1;
};

}  // namespace penstock
