#include <charconv>
#include <map>
#include <optional>

#include "common/base/status.h"
#include "worker/model/weight_source.h"

namespace penstock {
namespace {

struct NamePair {
  std::string_view gguf;
  std::string_view hf;
};

constexpr NamePair kModelNames[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
};
constexpr NamePair kLayerNames[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"},
    {"attn_output", "self_attn.o_proj"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

template <size_t N>
std::optional<std::string_view> Translate(const NamePair (&pairs)[N], std::string_view gguf) {
  for (const NamePair& pair : pairs) {
    if (pair.gguf == gguf) return pair.hf;
  }
  return std::nullopt;
}

// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight"; unknown names stay.
std::string HfName(const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return name;
  std::string_view stem = std::string_view(name).substr(0, dot);
  const std::string_view kind = std::string_view(name).substr(dot);
  constexpr std::string_view kBlock = "blk.";
  if (!stem.starts_with(kBlock)) {
    const auto hf = Translate(kModelNames, stem);
    return hf.has_value() ? absl::StrFormat("%s%s", *hf, kind) : name;
  }
  stem.remove_prefix(kBlock.size());
  int layer = 0;
  const auto [end, error] = std::from_chars(stem.data(), stem.data() + stem.size(), layer);
  stem.remove_prefix(static_cast<size_t>(end - stem.data()));
  if (error != std::errc() || !stem.starts_with('.')) return name;
  const auto hf = Translate(kLayerNames, stem.substr(1));
  return hf.has_value() ? absl::StrFormat("model.layers.%d.%s%s", layer, *hf, kind) : name;
}

// llama.cpp interleaves the two halves of each head: its row h*d + 2j + s is HF's h*d + s*d/2 + j.
std::vector<int32_t> HalvesOrder(int32_t num_heads, int32_t head_dim) {
  std::vector<int32_t> order;
  order.reserve(static_cast<size_t>(num_heads) * static_cast<size_t>(head_dim));
  for (int32_t head = 0; head < num_heads; ++head) {
    for (int32_t half = 0; half < 2; ++half) {
      for (int32_t j = 0; j < head_dim / 2; ++j) order.push_back(head * head_dim + 2 * j + half);
    }
  }
  return order;
}

class GgufSource : public WeightSource {
 public:
  GgufSource(std::unique_ptr<GgufFile> gguf, const ModelSpec& spec) : gguf_(std::move(gguf)) {
    for (const TensorInfo& tensor : gguf_->tensors()) {
      tensors_.emplace(HfName(tensor.name), &tensor);
      total_bytes_ += static_cast<int64_t>(tensor.data.size());
    }
    // Only files of its architecture "llama" are permuted.
    if (spec.architecture == "LlamaForCausalLM") {
      q_order_ = HalvesOrder(spec.num_heads, spec.head_dim);
      k_order_ = HalvesOrder(spec.num_kv_heads, spec.head_dim);
    }
  }

  absl::StatusOr<WeightView> Get(std::string_view hf_name) const override {
    const auto it = tensors_.find(hf_name);
    if (it == tensors_.end()) return NotFound("tensor '%s' is not in %s", hf_name, gguf_->name());
    const TensorInfo& tensor = *it->second;
    WeightView view{.dtype = tensor.dtype, .shape = tensor.shape, .data = tensor.data};
    const std::vector<int32_t>* order = OrderOf(hf_name);
    // Another number of rows is CheckWeights' to refuse.
    if (order != nullptr && static_cast<int64_t>(order->size()) == tensor.shape[0]) {
      view.row_order = *order;
    }
    return view;
  }
  bool Has(std::string_view hf_name) const override {
    return tensors_.find(hf_name) != tensors_.end();
  }
  int64_t total_bytes() const override { return total_bytes_; }

  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors_) names.push_back(name);
    return names;
  }
  std::string Location(std::string_view hf_name) const override {
    const auto it = tensors_.find(hf_name);
    if (it == tensors_.end() || it->second->name == hf_name) return gguf_->name();
    return absl::StrFormat("%s (as '%s')", gguf_->name(), it->second->name);
  }

 private:
  const std::vector<int32_t>* OrderOf(std::string_view hf_name) const {
    if (hf_name.find("self_attn.q_proj.") != std::string_view::npos) return &q_order_;
    if (hf_name.find("self_attn.k_proj.") != std::string_view::npos) return &k_order_;
    return nullptr;
  }

  const std::unique_ptr<GgufFile> gguf_;
  std::map<std::string, const TensorInfo*, std::less<>> tensors_;
  int64_t total_bytes_ = 0;
  std::vector<int32_t> q_order_;
  std::vector<int32_t> k_order_;
};

}  // namespace

std::unique_ptr<WeightSource> MakeGgufSource(std::unique_ptr<GgufFile> gguf,
                                             const ModelSpec& spec) {
  return std::make_unique<GgufSource>(std::move(gguf), spec);
}

}  // namespace penstock
