#include "worker/model/model_config.h"

#include <algorithm>
#include <optional>

#include "common/base/status.h"
#include "common/formats/mapped_file.h"
#include "common/json/json.h"
#include "worker/model/config_reader.h"
#include "worker/model/rope_config.h"

namespace penstock {
namespace {

constexpr size_t kMaxConfigBytes = size_t{16} << 20;

enum class Family { kLlama, kMistral, kQwen2, kQwen3 };

// What transformers assumes for fields that are absent, and what a family always has.
struct FamilyFacts {
  Family family;
  const char* architecture;
  const char* model_type;
  int32_t num_kv_heads;  // 0 = as many as heads
  int32_t head_dim;      // 0 = hidden_size / heads
  int32_t max_position;
};

constexpr FamilyFacts kFamilies[] = {
    {Family::kLlama, "LlamaForCausalLM", "llama", 0, 0, 2048},
    {Family::kMistral, "MistralForCausalLM", "mistral", 8, 0, 131072},
    {Family::kQwen2, "Qwen2ForCausalLM", "qwen2", 32, 0, 32768},
    {Family::kQwen3, "Qwen3ForCausalLM", "qwen3", 32, 128, 32768},
};

absl::StatusOr<FamilyFacts> FamilyOf(const ConfigReader& config) {
  std::string field = "architectures";
  std::string value;
  const Json* architectures = config.Find("architectures");
  if (architectures != nullptr) {
    if (!architectures->is_array() || architectures->as_array().empty() ||
        !architectures->as_array()[0].is_string()) {
      return InvalidArgument("%s is %s, expected a list of names", config.Field(field),
                             architectures->type_name());
    }
    value = architectures->as_array()[0].as_string();
  } else {
    field = "model_type";
    ASSIGN_OR_RETURN(const std::optional<std::string> type, config.String("model_type"));
    if (!type.has_value()) {
      return InvalidArgument("%s: neither architectures nor model_type is there", config.name());
    }
    value = *type;
  }
  std::string supported;
  for (const FamilyFacts& facts : kFamilies) {
    if (value == facts.architecture || (field == "model_type" && value == facts.model_type)) {
      return facts;
    }
    supported += absl::StrFormat("%s%s", supported.empty() ? "" : ", ", facts.architecture);
  }
  return Unimplemented("%s is '%s', which is not supported (supported: %s)", config.Field(field),
                       value, supported);
}

absl::StatusOr<Activation> ActivationOf(const ConfigReader& config) {
  ASSIGN_OR_RETURN(const std::optional<std::string> name, config.String("hidden_act"));
  const std::string act = name.value_or("silu");
  if (act == "silu" || act == "swish") return Activation::kSilu;
  if (act == "gelu") return Activation::kGelu;
  if (act == "gelu_pytorch_tanh" || act == "gelu_new" || act == "gelu_fast") {
    return Activation::kGeluTanh;
  }
  return Unimplemented(
      "%s is '%s', which is not supported (supported: silu, swish, gelu, gelu_new, gelu_fast, "
      "gelu_pytorch_tanh)",
      config.Field("hidden_act"), act);
}

absl::Status CheckUnquantized(const ConfigReader& config) {
  const Json* quantization = config.Find("quantization_config");
  if (quantization == nullptr) return absl::OkStatus();
  const Json* method = quantization->Find("quant_method");
  return Unimplemented(
      "%s has quant_method %s, which is not supported: use the model's bfloat16, float16 or "
      "float32 safetensors, or a GGUF file",
      config.Field("quantization_config"), method == nullptr ? "(none)" : method->Dump());
}

// layer_types: one of the two kinds for each layer.
absl::StatusOr<std::vector<int32_t>> WindowsFromTypes(const ConfigReader& config, const Json& types,
                                                      int32_t num_layers,
                                                      std::optional<int32_t> window) {
  const std::string field = config.Field("layer_types");
  if (!types.is_array() || static_cast<int64_t>(types.as_array().size()) != num_layers) {
    return InvalidArgument("%s: expected a list of %d entries, one for each layer", field,
                           num_layers);
  }
  std::vector<int32_t> windows;
  for (const Json& type : types.as_array()) {
    const std::string name = type.is_string() ? type.as_string() : type.Dump();
    if (name == "full_attention") {
      windows.push_back(0);
    } else if (name != "sliding_attention") {
      return Unimplemented(
          "%s[%d] is '%s', which is not supported (supported: full_attention, sliding_attention)",
          field, windows.size(), name);
    } else if (!window.has_value()) {
      return InvalidArgument("%s[%d] is sliding_attention, but no sliding_window is in use", field,
                             windows.size());
    } else {
      windows.push_back(*window);
    }
  }
  return windows;
}

absl::StatusOr<std::vector<int32_t>> MistralWindows(const ConfigReader& config, const Json& root,
                                                    int32_t num_layers) {
  // Absent means the class default, null means none.
  int32_t window = root.Find("sliding_window") == nullptr ? 4096 : 0;
  ASSIGN_OR_RETURN(window, config.PositiveOr("sliding_window", window));
  const Json* types = config.Find("layer_types");
  if (types == nullptr) return std::vector<int32_t>(static_cast<size_t>(num_layers), window);
  const auto used = window > 0 ? std::optional<int32_t>(window) : std::nullopt;
  return WindowsFromTypes(config, *types, num_layers, used);
}

absl::StatusOr<std::vector<int32_t>> QwenWindows(const ConfigReader& config, const Json& root,
                                                 int32_t num_layers) {
  ASSIGN_OR_RETURN(const bool use, config.BoolOr("use_sliding_window", false));
  std::optional<int32_t> window;
  const bool is_null = root.Find("sliding_window") != nullptr && !config.Has("sliding_window");
  if (use && !is_null) {
    ASSIGN_OR_RETURN(window, config.PositiveOr("sliding_window", 4096));
  }
  const Json* types = config.Find("layer_types");
  if (types != nullptr) return WindowsFromTypes(config, *types, num_layers, window);
  std::vector<int32_t> windows(static_cast<size_t>(num_layers), 0);
  if (!window.has_value()) return windows;
  int32_t first = 0;  // Positive() refuses 0, which is legal here
  const Json* limit = config.Find("max_window_layers");
  if (limit == nullptr || limit->ToInt64() != 0) {
    ASSIGN_OR_RETURN(first, config.PositiveOr("max_window_layers", 28));
  }
  for (int32_t i = first; i < num_layers; ++i) windows[static_cast<size_t>(i)] = *window;
  return windows;
}

absl::Status ReadSizes(const ConfigReader& config, const FamilyFacts& facts, ModelSpec* spec) {
  ASSIGN_OR_RETURN(spec->vocab_size, config.Positive("vocab_size"));
  ASSIGN_OR_RETURN(spec->hidden_size, config.Positive("hidden_size"));
  ASSIGN_OR_RETURN(spec->intermediate_size, config.Positive("intermediate_size"));
  ASSIGN_OR_RETURN(spec->num_layers, config.Positive("num_hidden_layers"));
  ASSIGN_OR_RETURN(spec->num_heads, config.Positive("num_attention_heads"));
  const int32_t kv_heads = facts.num_kv_heads == 0 ? spec->num_heads : facts.num_kv_heads;
  ASSIGN_OR_RETURN(spec->num_kv_heads, config.PositiveOr("num_key_value_heads", kv_heads));
  ASSIGN_OR_RETURN(spec->max_position,
                   config.PositiveOr("max_position_embeddings", facts.max_position));
  if (config.Has("head_dim")) {
    ASSIGN_OR_RETURN(spec->head_dim, config.Positive("head_dim"));
  } else if (facts.head_dim != 0) {
    spec->head_dim = facts.head_dim;
  } else if (spec->hidden_size % spec->num_heads == 0) {
    spec->head_dim = spec->hidden_size / spec->num_heads;
  } else {
    return InvalidArgument(
        "%s: hidden_size %d is no multiple of num_attention_heads %d, and there "
        "is no head_dim",
        config.name(), spec->hidden_size, spec->num_heads);
  }
  return absl::OkStatus();
}

absl::Status ReadBiases(const ConfigReader& config, Family family, ModelSpec* spec) {
  switch (family) {
    case Family::kMistral:
      return absl::OkStatus();
    case Family::kQwen2:
      spec->qkv_bias = true;
      return absl::OkStatus();
    case Family::kQwen3:
      spec->qk_norm = true;
      break;
    case Family::kLlama: {
      ASSIGN_OR_RETURN(spec->mlp_bias, config.BoolOr("mlp_bias", false));
      break;
    }
  }
  ASSIGN_OR_RETURN(spec->qkv_bias, config.BoolOr("attention_bias", false));
  spec->o_bias = spec->qkv_bias;
  return absl::OkStatus();
}

absl::StatusOr<std::string> WeightsType(const ConfigReader& config) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    ASSIGN_OR_RETURN(const std::optional<std::string> type, config.String(key));
    if (type.has_value()) return type->starts_with("torch.") ? type->substr(6) : *type;
  }
  return std::string("bfloat16");
}

absl::StatusOr<std::vector<int32_t>> Windows(const ConfigReader& config, const Json& root,
                                             Family family, int32_t num_layers) {
  if (family == Family::kMistral) return MistralWindows(config, root, num_layers);
  if (family != Family::kLlama) return QwenWindows(config, root, num_layers);
  return std::vector<int32_t>(static_cast<size_t>(num_layers), 0);
}

}  // namespace

absl::StatusOr<ModelSpec> SpecFromConfigJson(std::string_view text, std::string_view name) {
  const absl::StatusOr<Json> root = Json::Parse(text);
  if (!root.ok()) return InvalidArgument("%s: %s", name, root.status().message());
  if (!root->is_object()) return InvalidArgument("%s is not a JSON object", name);
  const ConfigReader config(*root, name);
  ASSIGN_OR_RETURN(const FamilyFacts facts, FamilyOf(config));
  RETURN_IF_ERROR(CheckUnquantized(config));

  ModelSpec spec;
  spec.architecture = facts.architecture;
  RETURN_IF_ERROR(ReadSizes(config, facts, &spec));
  ASSIGN_OR_RETURN(spec.rms_norm_eps, config.PositiveNumberOr("rms_norm_eps", 1e-6));
  ASSIGN_OR_RETURN(spec.activation, ActivationOf(config));
  ASSIGN_OR_RETURN(spec.tie_word_embeddings, config.BoolOr("tie_word_embeddings", false));
  RETURN_IF_ERROR(ReadBiases(config, facts.family, &spec));
  spec.layer_window.assign(1, 0);  // until the number of layers is known to be sane
  if (spec.num_layers <= kMaxLayers) {
    ASSIGN_OR_RETURN(spec.layer_window, Windows(config, *root, facts.family, spec.num_layers));
  }
  ASSIGN_OR_RETURN(spec.rope, RopeFromConfig(config, spec.head_dim, spec.max_position));
  ASSIGN_OR_RETURN(spec.weights_dtype, WeightsType(config));
  RETURN_IF_ERROR(CheckSpec(spec, name));
  return spec;
}

absl::StatusOr<ModelSpec> SpecFromConfigFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  return SpecFromConfigJson(text, path);
}

}  // namespace penstock
