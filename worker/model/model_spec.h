#pragma once

// A model as data: everything the forward pass needs to know besides weights. Made from config.json
// or GGUF metadata (model_config.h). A new architecture is a spec and a weight-name map.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace penstock {

enum class Activation { kSilu, kGeluTanh, kGelu };

struct RopeSpec {
  enum class Kind { kDefault, kLinear, kDynamicNtk, kLlama3, kYarn, kLongRope };
  Kind kind = Kind::kDefault;
  double theta = 10000.0;
  int32_t rotary_dim = 0;  // even, <= head_dim; pairs are (i, i + rotary_dim/2) as in HF
  double factor = 1.0;
  int32_t original_max_position = 0;
  // llama3
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  // yarn
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  double attention_factor = 0.0;  // 0 = derived from factor (yarn, longrope)
  double mscale = 0.0;
  double mscale_all_dim = 0.0;
  bool truncate = true;
  // longrope: rotary_dim/2 entries each
  std::vector<double> short_factor;
  std::vector<double> long_factor;
};

struct ModelSpec {
  std::string architecture;  // "LlamaForCausalLM"
  int32_t vocab_size = 0;
  int32_t hidden_size = 0;
  int32_t intermediate_size = 0;
  int32_t num_layers = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t max_position = 0;  // max_position_embeddings
  double rms_norm_eps = 1e-5;
  Activation activation = Activation::kSilu;
  RopeSpec rope;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;  // per-head RMSNorm on q and k before RoPE (Qwen3)
  std::vector<int32_t>
      layer_window;           // per layer: 0 = full attention, else tokens seen (with itself)
  std::string weights_dtype;  // "bfloat16", "Q4_1": for the operator's eyes
};

// No model has more layers: a bound for what is sized by the number of layers.
inline constexpr int32_t kMaxLayers = 4096;

// Every number positive and below a bound that keeps products within 64 bits, heads divisible by KV
// heads, windows for every layer. name is the file, for messages.
absl::Status CheckSpec(const ModelSpec& spec, std::string_view name);
// InvalidArgument names the sizes that do divide. Fewer KV heads than ranks are replicated, the
// vocabulary is padded: neither is an error.
absl::Status CheckTensorParallel(const ModelSpec& spec, int size);

// Parameters in the linear layers, embeddings and norms. A tied head counts once.
int64_t CountParameters(const ModelSpec& spec);
// Bytes of K and V per token over all layers, at element_bytes per number.
int64_t KvBytesPerToken(const ModelSpec& spec, int element_bytes);
// KV bytes that one sequence of `tokens` tokens needs: layers with a window keep at most
// window tokens, rounded up to whole blocks (plus one for the edge).
int64_t KvBytesPerSequence(const ModelSpec& spec, int64_t tokens, int element_bytes,
                           int block_size);

// The names of spec fields as canonical text, one "key=value" a line: equal text, equal
// computation. For the fingerprint and for messages.
std::string SpecText(const ModelSpec& spec);

}  // namespace penstock
