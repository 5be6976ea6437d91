#pragma once

// Rotary embedding frequencies of every RopeSpec kind, the same numbers as HF transformers
// computes (tests compare with goldens made by it).

#include <cstdint>
#include <vector>

#include "worker/model/model_spec.h"

namespace penstock {

struct RopeTable {
  // rotary_dim / 2 radians per position: pair i is rotated by position * inv_freq[i].
  std::vector<float> inv_freq;
  // cos and sin are multiplied by this (yarn and longrope; else 1).
  float attention_factor = 1.0f;
};

// served_len is the longest sequence that will be served. dynamic and longrope depend on length:
// HF switches as a sequence grows, which invalidates the keys cached before the switch; here the
// frequencies are those of HF for a sequence of served_len, for every sequence and position.
RopeTable ComputeRope(const RopeSpec& rope, int32_t max_position, int64_t served_len);

// The longest sequence that the model serves when nothing else is asked for: max_position, or
// factor x original length for a yarn config that kept the original length in max_position.
int64_t RopeMaxPosition(const RopeSpec& rope, int32_t max_position);

}  // namespace penstock
