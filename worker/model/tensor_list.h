#pragma once

// The tensors that a model of this spec consists of, under HF's names.

#include <cstdint>
#include <string>
#include <vector>

#include "worker/model/model_spec.h"

namespace penstock {

struct NamedShape {
  std::string name;            // "model.layers.0.self_attn.q_proj.weight"
  std::vector<int64_t> shape;  // {out, in} or {size}
  bool is_norm = false;        // an RMSNorm's scale
};

// In the order of the forward pass. spec has passed CheckSpec. No lm_head when it is tied.
std::vector<NamedShape> RequiredTensors(const ModelSpec& spec);

}  // namespace penstock
