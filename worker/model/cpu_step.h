#pragma once

// One step's input, unpacked for the CPU: per token its id, position, angles and place in the
// cache; per KV group the sequences with their block tables. Buffers are reused from step to step.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/attention.h"
#include "worker/engine/step.h"
#include "worker/model/rope.h"

namespace penstock {

struct CpuStep {
  struct Group {
    std::vector<kernels::AttentionSequence> sequences;
    std::vector<int32_t> blocks;  // the sequences' tables point into it
    // Per token: block and offset in it that take its K and V.
    std::vector<int32_t> token_block;
    std::vector<int32_t> token_offset;
  };
  int32_t num_tokens = 0;
  std::vector<int32_t> token_ids;
  std::vector<int32_t> positions;
  std::vector<float> cos, sin;  // [tokens, rotary_dim / 2]
  std::vector<int32_t> last;    // token index of each row that wants logits, in row order
  std::vector<Group> groups;
};

// last_token(slot) gives the id that a row without ids takes in.
template <typename LastToken>
void UnpackStep(const StepInput& input, int32_t block_size, const RopeTable& rope,
                LastToken last_token, CpuStep* step);

// cos and sin of a finite angle below 2^30, in double, the same on every machine.
void SinCos(double angle, double* sin, double* cos);

// The parts of UnpackStep that do not depend on LastToken.
void UnpackRow(const StepInput& input, size_t row_index, int32_t block_size, CpuStep* step);
void FillAngles(const RopeTable& rope, CpuStep* step);

template <typename LastToken>
void UnpackStep(const StepInput& input, int32_t block_size, const RopeTable& rope,
                LastToken last_token, CpuStep* step) {
  step->num_tokens = input.num_tokens();
  step->token_ids.clear();
  step->positions.clear();
  step->last.clear();
  step->groups.resize(static_cast<size_t>(input.num_groups()));
  for (CpuStep::Group& group : step->groups) {
    group.sequences.clear();
    group.blocks.clear();
    group.blocks.reserve(input.blocks().size());  // tables point into it
    group.token_block.clear();
    group.token_offset.clear();
  }
  for (size_t i = 0; i < input.rows().size(); ++i) {
    const StepRow& row = input.rows()[i];
    UnpackRow(input, i, block_size, step);
    if (row.token_offset < 0) {
      step->token_ids.push_back(last_token(row.slot));
      continue;
    }
    const auto ids = input.token_ids().subspan(static_cast<size_t>(row.token_offset),
                                               static_cast<size_t>(row.num_tokens));
    step->token_ids.insert(step->token_ids.end(), ids.begin(), ids.end());
  }
  FillAngles(rope, step);
}

}  // namespace penstock
