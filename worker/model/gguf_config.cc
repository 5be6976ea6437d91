#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "common/base/status.h"
#include "common/formats/dequantize.h"
#include "worker/model/model_config.h"

namespace penstock {
namespace {

struct GgufFamily {
  const char* gguf;
  const char* hf;
};

constexpr GgufFamily kFamilies[] = {
    {"llama", "LlamaForCausalLM"},
    {"qwen2", "Qwen2ForCausalLM"},
    {"qwen3", "Qwen3ForCausalLM"},
};

// Keys of "<architecture>.".
class Keys {
 public:
  Keys(const GgufFile& gguf, std::string architecture)
      : gguf_(gguf), prefix_(std::move(architecture) + ".") {}

  std::string Name(std::string_view key) const { return prefix_ + std::string(key); }

  absl::StatusOr<int32_t> Positive(std::string_view key) const {
    ASSIGN_OR_RETURN(const std::optional<int32_t> value, PositiveIf(key));
    if (!value.has_value()) return InvalidArgument("%s: %s is missing", gguf_.name(), Name(key));
    return *value;
  }
  absl::StatusOr<std::optional<int32_t>> PositiveIf(std::string_view key) const {
    const auto it = gguf_.metadata().find(Name(key));
    if (it == gguf_.metadata().end()) return std::optional<int32_t>();
    if (std::holds_alternative<GgufArray>(it->second)) return SameForAllLayers(key);
    ASSIGN_OR_RETURN(const std::optional<int64_t> value, gguf_.Int(Name(key)));
    RETURN_IF_ERROR(CheckPositive(key, *value));
    return std::optional<int32_t>(static_cast<int32_t>(*value));
  }
  absl::StatusOr<std::optional<double>> PositiveFloatIf(std::string_view key) const {
    ASSIGN_OR_RETURN(const std::optional<double> value, gguf_.Float(Name(key)));
    if (value.has_value() && !(std::isfinite(*value) && *value > 0.0)) {
      return InvalidArgument("%s: %s is %g, expected a number above 0", gguf_.name(), Name(key),
                             *value);
    }
    return value;
  }
  absl::StatusOr<double> PositiveFloatOr(std::string_view key, double absent) const {
    ASSIGN_OR_RETURN(const std::optional<double> value, PositiveFloatIf(key));
    return value.value_or(absent);
  }
  absl::StatusOr<std::optional<std::string_view>> String(std::string_view key) const {
    return gguf_.String(Name(key));
  }
  const GgufFile& gguf() const { return gguf_; }

 private:
  absl::Status CheckPositive(std::string_view key, int64_t value) const {
    if (value >= 1 && value <= INT32_MAX) return absl::OkStatus();
    return InvalidArgument("%s: %s is %d, expected a positive 32-bit number", gguf_.name(),
                           Name(key), value);
  }
  // A few converters write one number a layer.
  absl::StatusOr<std::optional<int32_t>> SameForAllLayers(std::string_view key) const {
    ASSIGN_OR_RETURN(const GgufArray* array, gguf_.Array(Name(key)));
    const std::optional<int64_t> first = array->IntAt(0);
    if (!first.has_value()) {
      return InvalidArgument("%s: %s is not a number nor a list of them", gguf_.name(), Name(key));
    }
    for (uint64_t i = 1; i < array->count; ++i) {
      if (array->IntAt(i) != first) {
        return Unimplemented("%s: %s differs between layers, which is not supported", gguf_.name(),
                             Name(key));
      }
    }
    RETURN_IF_ERROR(CheckPositive(key, *first));
    return std::optional<int32_t>(static_cast<int32_t>(*first));
  }

  const GgufFile& gguf_;
  std::string prefix_;
};

absl::StatusOr<GgufFamily> FamilyOf(const GgufFile& gguf) {
  ASSIGN_OR_RETURN(const std::optional<std::string_view> name, gguf.String("general.architecture"));
  if (!name.has_value()) {
    return InvalidArgument("%s: general.architecture is missing", gguf.name());
  }
  for (const GgufFamily& family : kFamilies) {
    if (*name == family.gguf) return family;
  }
  return Unimplemented(
      "%s: general.architecture is '%s', which is not supported (supported: llama, qwen2, qwen3)",
      gguf.name(), *name);
}

absl::Status CheckWhole(const GgufFile& gguf, const Keys& keys) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> split, gguf.Int("split.count"));
  if (split.value_or(1) > 1) {
    return Unimplemented(
        "%s is one of %d parts: split GGUF files are not supported, join them with gguf-split "
        "--merge",
        gguf.name(), *split);
  }
  ASSIGN_OR_RETURN(const std::optional<int64_t> experts, gguf.Int(keys.Name("expert_count")));
  if (experts.value_or(0) > 0) {
    return Unimplemented("%s: %s is %d: mixture-of-experts models are not supported", gguf.name(),
                         keys.Name("expert_count"), *experts);
  }
  return absl::OkStatus();
}

// A tensor of per-pair divisors of the frequencies, as llama.cpp stores llama3 and longrope
// scaling.
absl::StatusOr<std::vector<double>> FrequencyFactors(const GgufFile& gguf, const char* name,
                                                     int32_t pairs) {
  const TensorInfo* tensor = gguf.FindTensor(name);
  if (tensor == nullptr) return std::vector<double>();
  if (tensor->dtype != DType::kF32 || tensor->shape != std::vector<int64_t>{pairs}) {
    return InvalidArgument("%s: tensor '%s' is %s %s, expected F32 [%d]", gguf.name(), name,
                           DTypeName(tensor->dtype), ShapeText(tensor->shape), pairs);
  }
  std::vector<float> values(static_cast<size_t>(pairs));
  Dequantize(tensor->dtype, tensor->data, values);
  for (const float value : values) {
    if (!(std::isfinite(value) && value > 0.0f)) {
      return InvalidArgument("%s: tensor '%s' holds %g, expected numbers above 0", gguf.name(),
                             name, value);
    }
  }
  return std::vector<double>(values.begin(), values.end());
}

absl::Status ReadFactorTensors(const GgufFile& gguf, const Keys& keys, RopeSpec* rope) {
  const int32_t pairs = rope->rotary_dim / 2;
  ASSIGN_OR_RETURN(std::vector<double> all, FrequencyFactors(gguf, "rope_freqs.weight", pairs));
  ASSIGN_OR_RETURN(std::vector<double> shorter,
                   FrequencyFactors(gguf, "rope_factors_short.weight", pairs));
  ASSIGN_OR_RETURN(std::vector<double> longer,
                   FrequencyFactors(gguf, "rope_factors_long.weight", pairs));
  if (all.empty() && shorter.empty() && longer.empty()) return absl::OkStatus();
  if (rope->kind != RopeSpec::Kind::kDefault) {
    return Unimplemented("%s: both rope.scaling.type and RoPE factor tensors are there",
                         gguf.name());
  }
  if (all.empty() && (shorter.empty() || longer.empty())) {
    return InvalidArgument(
        "%s: one of rope_factors_short.weight and rope_factors_long.weight is "
        "missing",
        gguf.name());
  }
  rope->kind = RopeSpec::Kind::kLongRope;
  rope->short_factor = all.empty() ? std::move(shorter) : all;
  rope->long_factor = all.empty() ? std::move(longer) : all;
  ASSIGN_OR_RETURN(rope->attention_factor, keys.PositiveFloatOr("rope.scaling.attn_factor", 1.0));
  return absl::OkStatus();
}

absl::Status ReadScaling(const Keys& keys, RopeSpec* rope) {
  ASSIGN_OR_RETURN(const std::optional<std::string_view> type, keys.String("rope.scaling.type"));
  ASSIGN_OR_RETURN(const double old_factor, keys.PositiveFloatOr("rope.scale_linear", 1.0));
  const std::string_view kind = type.value_or(old_factor == 1.0 ? "none" : "linear");
  if (kind == "none" || kind == "longrope") return absl::OkStatus();  // longrope is in tensors
  ASSIGN_OR_RETURN(rope->factor, keys.PositiveFloatOr("rope.scaling.factor", old_factor));
  if (kind == "linear") {
    rope->kind = RopeSpec::Kind::kLinear;
    return absl::OkStatus();
  }
  if (kind != "yarn") {
    return Unimplemented(
        "%s: %s is '%s', which is not supported (supported: none, linear, yarn, longrope)",
        keys.gguf().name(), keys.Name("rope.scaling.type"), kind);
  }
  rope->kind = RopeSpec::Kind::kYarn;
  ASSIGN_OR_RETURN(rope->beta_fast, keys.PositiveFloatOr("rope.scaling.yarn_beta_fast", 32.0));
  ASSIGN_OR_RETURN(rope->beta_slow, keys.PositiveFloatOr("rope.scaling.yarn_beta_slow", 1.0));
  // llama.cpp multiplies its own log(factor) term by attn_factor.
  ASSIGN_OR_RETURN(const std::optional<double> attention,
                   keys.PositiveFloatIf("rope.scaling.attn_factor"));
  if (attention.has_value()) {
    rope->attention_factor = *attention * (0.1 * std::log(rope->factor) + 1.0);
  }
  return absl::OkStatus();
}

absl::Status ReadRope(const Keys& keys, ModelSpec* spec) {
  RopeSpec& rope = spec->rope;
  ASSIGN_OR_RETURN(const std::optional<int32_t> dim, keys.PositiveIf("rope.dimension_count"));
  rope.rotary_dim = dim.value_or(spec->head_dim);
  if (rope.rotary_dim % 2 != 0 || rope.rotary_dim > spec->head_dim) {
    return InvalidArgument("%s: %s is %d, expected an even number up to the head size %d",
                           keys.gguf().name(), keys.Name("rope.dimension_count"), rope.rotary_dim,
                           spec->head_dim);
  }
  ASSIGN_OR_RETURN(rope.theta, keys.PositiveFloatOr("rope.freq_base", 10000.0));
  ASSIGN_OR_RETURN(const std::optional<int32_t> original,
                   keys.PositiveIf("rope.scaling.original_context_length"));
  rope.original_max_position = original.value_or(spec->max_position);
  RETURN_IF_ERROR(ReadScaling(keys, &rope));
  return ReadFactorTensors(keys.gguf(), keys, &rope);
}

absl::Status ReadSizes(const Keys& keys, ModelSpec* spec) {
  ASSIGN_OR_RETURN(spec->hidden_size, keys.Positive("embedding_length"));
  ASSIGN_OR_RETURN(spec->intermediate_size, keys.Positive("feed_forward_length"));
  ASSIGN_OR_RETURN(spec->num_layers, keys.Positive("block_count"));
  ASSIGN_OR_RETURN(spec->num_heads, keys.Positive("attention.head_count"));
  ASSIGN_OR_RETURN(const std::optional<int32_t> kv_heads,
                   keys.PositiveIf("attention.head_count_kv"));
  spec->num_kv_heads = kv_heads.value_or(spec->num_heads);
  ASSIGN_OR_RETURN(spec->max_position, keys.Positive("context_length"));
  ASSIGN_OR_RETURN(const std::optional<int32_t> key, keys.PositiveIf("attention.key_length"));
  ASSIGN_OR_RETURN(const std::optional<int32_t> value, keys.PositiveIf("attention.value_length"));
  if (!key.has_value() && spec->hidden_size % spec->num_heads != 0) {
    return InvalidArgument("%s: %s %d is no multiple of %s %d, and there is no %s",
                           keys.gguf().name(), keys.Name("embedding_length"), spec->hidden_size,
                           keys.Name("attention.head_count"), spec->num_heads,
                           keys.Name("attention.key_length"));
  }
  spec->head_dim = key.value_or(spec->hidden_size / spec->num_heads);
  if (value.value_or(spec->head_dim) != spec->head_dim) {
    return Unimplemented("%s: %s is %d and %s %d: different sizes are not supported",
                         keys.gguf().name(), keys.Name("attention.key_length"), spec->head_dim,
                         keys.Name("attention.value_length"), *value);
  }
  return absl::OkStatus();
}

// As many as the vocabulary has; the key only where the file carries no vocabulary.
absl::StatusOr<int32_t> VocabSize(const Keys& keys) {
  ASSIGN_OR_RETURN(const GgufArray* tokens, keys.gguf().Array("tokenizer.ggml.tokens"));
  if (tokens == nullptr) return keys.Positive("vocab_size");
  if (tokens->count > INT32_MAX) {
    return InvalidArgument("%s: tokenizer.ggml.tokens has %d entries", keys.gguf().name(),
                           tokens->count);
  }
  return static_cast<int32_t>(tokens->count);
}

// Mistral 0.1's files may carry a window for every layer. Qwen's key says nothing of the layers
// that use it, and its models come with windows switched off: not read, as llama.cpp does.
absl::StatusOr<int32_t> Window(const Keys& keys, const GgufFamily& family) {
  if (std::string_view(family.gguf) != "llama") return 0;
  ASSIGN_OR_RETURN(const std::optional<int64_t> window,
                   keys.gguf().Int(keys.Name("attention.sliding_window")));
  if (window.value_or(0) >= 0 && window.value_or(0) <= INT32_MAX) {
    return static_cast<int32_t>(window.value_or(0));
  }
  return InvalidArgument("%s: %s is %d", keys.gguf().name(), keys.Name("attention.sliding_window"),
                         *window);
}

// The type that holds most bytes.
std::string MainType(const GgufFile& gguf) {
  std::map<DType, size_t> bytes;
  for (const TensorInfo& tensor : gguf.tensors()) bytes[tensor.dtype] += tensor.data.size();
  const auto most = std::max_element(
      bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? "" : std::string(DTypeName(most->first));
}

}  // namespace

absl::StatusOr<ModelSpec> SpecFromGguf(const GgufFile& gguf) {
  ASSIGN_OR_RETURN(const GgufFamily family, FamilyOf(gguf));
  const Keys keys(gguf, family.gguf);
  RETURN_IF_ERROR(CheckWhole(gguf, keys));
  ModelSpec spec;
  spec.architecture = family.hf;
  RETURN_IF_ERROR(ReadSizes(keys, &spec));
  ASSIGN_OR_RETURN(spec.vocab_size, VocabSize(keys));
  ASSIGN_OR_RETURN(spec.rms_norm_eps,
                   keys.PositiveFloatOr("attention.layer_norm_rms_epsilon", 1e-6));
  if (spec.num_layers <= kMaxLayers) {
    ASSIGN_OR_RETURN(const int32_t window, Window(keys, family));
    spec.layer_window.assign(static_cast<size_t>(spec.num_layers), window);
  }
  RETURN_IF_ERROR(ReadRope(keys, &spec));
  // The file's tensors say what the metadata does not.
  spec.tie_word_embeddings = gguf.FindTensor("output.weight") == nullptr;
  spec.qkv_bias = gguf.FindTensor("blk.0.attn_q.bias") != nullptr;
  spec.o_bias = gguf.FindTensor("blk.0.attn_output.bias") != nullptr;
  spec.mlp_bias = gguf.FindTensor("blk.0.ffn_down.bias") != nullptr;
  spec.qk_norm = std::string_view(family.gguf) == "qwen3";
  spec.weights_dtype = MainType(gguf);
  RETURN_IF_ERROR(CheckSpec(spec, gguf.name()));
  return spec;
}

}  // namespace penstock
