#include "worker/model/tensor_list.h"

#include "absl/strings/str_format.h"

namespace penstock {
namespace {

void AddLinear(std::vector<NamedShape>* out, const std::string& name, int64_t rows, int64_t cols,
               bool bias) {
  out->push_back({name + ".weight", {rows, cols}});
  if (bias) out->push_back({name + ".bias", {rows}});
}

void AddNorm(std::vector<NamedShape>* out, const std::string& name, int64_t size) {
  out->push_back({name + ".weight", {size}, true});
}

void AddLayer(std::vector<NamedShape>* out, const ModelSpec& spec, int layer) {
  const std::string base = absl::StrFormat("model.layers.%d.", layer);
  const int64_t hidden = spec.hidden_size;
  const int64_t q = int64_t{spec.num_heads} * spec.head_dim;
  const int64_t kv = int64_t{spec.num_kv_heads} * spec.head_dim;
  AddNorm(out, base + "input_layernorm", hidden);
  AddLinear(out, base + "self_attn.q_proj", q, hidden, spec.qkv_bias);
  AddLinear(out, base + "self_attn.k_proj", kv, hidden, spec.qkv_bias);
  AddLinear(out, base + "self_attn.v_proj", kv, hidden, spec.qkv_bias);
  if (spec.qk_norm) {
    AddNorm(out, base + "self_attn.q_norm", spec.head_dim);
    AddNorm(out, base + "self_attn.k_norm", spec.head_dim);
  }
  AddLinear(out, base + "self_attn.o_proj", hidden, q, spec.o_bias);
  AddNorm(out, base + "post_attention_layernorm", hidden);
  AddLinear(out, base + "mlp.gate_proj", spec.intermediate_size, hidden, spec.mlp_bias);
  AddLinear(out, base + "mlp.up_proj", spec.intermediate_size, hidden, spec.mlp_bias);
  AddLinear(out, base + "mlp.down_proj", hidden, spec.intermediate_size, spec.mlp_bias);
}

}  // namespace

std::vector<NamedShape> RequiredTensors(const ModelSpec& spec) {
  std::vector<NamedShape> tensors;
  AddLinear(&tensors, "model.embed_tokens", spec.vocab_size, spec.hidden_size, false);
  for (int layer = 0; layer < spec.num_layers; ++layer) AddLayer(&tensors, spec, layer);
  AddNorm(&tensors, "model.norm", spec.hidden_size);
  if (!spec.tie_word_embeddings) {
    AddLinear(&tensors, "lm_head", spec.vocab_size, spec.hidden_size, false);
  }
  return tensors;
}

}  // namespace penstock
