#pragma once

// The forward pass of a decoder-only transformer, once for all devices. Ops says how each operation
// is done and on what: CpuOps on packed weights and a paged cache, ReferenceOps in plain loops.
//
// Ops has: types Weights (embedding, layers[i], final_norm, head()) and buffers named below, each
// [tokens of the step, width]. Layers have input_norm, mlp_norm, qkv, o, gate, up, down.

#include <cstddef>

#include "worker/model/model_spec.h"

namespace penstock {

// Leaves the normed last hidden state of each row that wants logits in ops.last().
template <typename Ops>
void RunTransformer(const ModelSpec& spec, const typename Ops::Weights& weights, Ops& ops) {
  ops.Embed(weights.embedding, ops.hidden());
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const auto& layer = weights.layers[i];
    const auto index = static_cast<int32_t>(i);

    ops.RmsNorm(ops.hidden(), layer.input_norm, ops.normed());
    ops.Qkv(ops.normed(), layer, ops.qkv());
    ops.RopeAndCache(ops.qkv(), layer, index, ops.queries());  // per-head norms, RoPE, K and V kept
    ops.Attend(ops.queries(), index, ops.attended());
    ops.LinearAdd(ops.attended(), layer.o, ops.hidden());

    ops.RmsNorm(ops.hidden(), layer.mlp_norm, ops.normed());
    ops.GatedLinear(ops.normed(), layer.gate, layer.up, spec.activation, ops.gated());
    ops.LinearAdd(ops.gated(), layer.down, ops.hidden());
  }
  ops.GatherLast(ops.hidden(), ops.last());
  ops.RmsNorm(ops.last(), weights.final_norm, ops.last());
}

}  // namespace penstock
