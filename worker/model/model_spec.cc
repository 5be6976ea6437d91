#include "worker/model/model_spec.h"

#include <algorithm>

#include "common/base/status.h"
#include "worker/model/tensor_list.h"

namespace penstock {
namespace {

// Bounds far above any model, so that every product below stays within 64 bits.
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxWidth = int64_t{1} << 20;
constexpr int64_t kMaxHeadDim = 1024;
constexpr int64_t kMaxPosition = int64_t{1} << 30;
constexpr int kMaxRanks = 64;

struct Bound {
  const char* field;
  int64_t value;
  int64_t max;
};

absl::Status CheckBounds(const ModelSpec& spec, std::string_view name) {
  const Bound bounds[] = {
      {"vocab_size", spec.vocab_size, kMaxVocab},
      {"hidden_size", spec.hidden_size, kMaxWidth},
      {"intermediate_size", spec.intermediate_size, kMaxWidth},
      {"num_hidden_layers", spec.num_layers, kMaxLayers},
      {"num_attention_heads", spec.num_heads, kMaxWidth},
      {"num_key_value_heads", spec.num_kv_heads, kMaxWidth},
      {"head_dim", spec.head_dim, kMaxHeadDim},
      {"max_position_embeddings", spec.max_position, kMaxPosition},
  };
  for (const Bound& bound : bounds) {
    if (bound.value < 1 || bound.value > bound.max) {
      return InvalidArgument("%s: %s is %d, expected 1 to %d", name, bound.field, bound.value,
                             bound.max);
    }
  }
  return absl::OkStatus();
}

bool Divides(const ModelSpec& spec, int size) {
  return spec.num_heads % size == 0 && spec.intermediate_size % size == 0 &&
         (spec.num_kv_heads % size == 0 || size % spec.num_kv_heads == 0);
}

}  // namespace

absl::Status CheckSpec(const ModelSpec& spec, std::string_view name) {
  RETURN_IF_ERROR(CheckBounds(spec, name));
  if (spec.num_heads % spec.num_kv_heads != 0) {
    return InvalidArgument("%s: num_attention_heads %d is no multiple of num_key_value_heads %d",
                           name, spec.num_heads, spec.num_kv_heads);
  }
  if (int64_t{spec.num_heads} * spec.head_dim > kMaxWidth) {
    return InvalidArgument("%s: num_attention_heads %d x head_dim %d is beyond %d", name,
                           spec.num_heads, spec.head_dim, kMaxWidth);
  }
  const int32_t rotary = spec.rope.rotary_dim;
  if (rotary < 2 || rotary % 2 != 0 || rotary > spec.head_dim) {
    return InvalidArgument(
        "%s: RoPE rotates %d of head_dim %d values, expected an even number up to head_dim", name,
        rotary, spec.head_dim);
  }
  if (!(spec.rms_norm_eps > 0.0 && spec.rms_norm_eps < 1.0)) {
    return InvalidArgument("%s: rms_norm_eps is %g, expected a number between 0 and 1", name,
                           spec.rms_norm_eps);
  }
  if (static_cast<int64_t>(spec.layer_window.size()) != spec.num_layers) {
    return InvalidArgument("%s: %d layer types for %d layers", name, spec.layer_window.size(),
                           spec.num_layers);
  }
  for (const int32_t window : spec.layer_window) {
    if (window < 0) return InvalidArgument("%s: sliding_window is %d", name, window);
  }
  return absl::OkStatus();
}

absl::Status CheckTensorParallel(const ModelSpec& spec, int size) {
  if (size >= 1 && size <= kMaxRanks && Divides(spec, size)) return absl::OkStatus();
  std::string valid;
  for (int i = 1; i <= kMaxRanks; ++i) {
    if (Divides(spec, i)) valid += absl::StrFormat("%s%d", valid.empty() ? "" : ", ", i);
  }
  return InvalidArgument(
      "--tensor-parallel-size %d does not divide this model (%d attention heads, %d KV heads, "
      "intermediate size %d); sizes that do: %s",
      size, spec.num_heads, spec.num_kv_heads, spec.intermediate_size, valid);
}

int64_t CountParameters(const ModelSpec& spec) {
  int64_t total = 0;
  for (const NamedShape& tensor : RequiredTensors(spec)) {
    int64_t elements = 1;
    for (const int64_t size : tensor.shape) elements *= size;
    total += elements;
  }
  return total;
}

int64_t KvBytesPerToken(const ModelSpec& spec, int element_bytes) {
  return int64_t{2} * spec.num_layers * spec.num_kv_heads * spec.head_dim * element_bytes;
}

int64_t KvBytesPerSequence(const ModelSpec& spec, int64_t tokens, int element_bytes,
                           int block_size) {
  const int64_t per_layer_token = int64_t{2} * spec.num_kv_heads * spec.head_dim * element_bytes;
  int64_t bytes = 0;
  for (const int32_t window : spec.layer_window) {
    int64_t blocks = (tokens + block_size - 1) / block_size;
    if (window > 0) blocks = std::min(blocks, int64_t{window + block_size - 1} / block_size + 1);
    bytes += blocks * block_size * per_layer_token;
  }
  return bytes;
}

std::string SpecText(const ModelSpec& spec) {
  const RopeSpec& rope = spec.rope;
  std::string text = absl::StrFormat(
      "architecture=%s\nvocab=%d\nhidden=%d\nintermediate=%d\nlayers=%d\nheads=%d\nkv_heads=%d\n"
      "head_dim=%d\nmax_position=%d\neps=%.17g\nactivation=%d\ntied=%d\nqkv_bias=%d\no_bias=%d\n"
      "mlp_bias=%d\nqk_norm=%d\n",
      spec.architecture, spec.vocab_size, spec.hidden_size, spec.intermediate_size, spec.num_layers,
      spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.max_position, spec.rms_norm_eps,
      static_cast<int>(spec.activation), spec.tie_word_embeddings, spec.qkv_bias, spec.o_bias,
      spec.mlp_bias, spec.qk_norm);
  text += absl::StrFormat(
      "rope=%d theta=%.17g dim=%d factor=%.17g original=%d low=%.17g high=%.17g fast=%.17g "
      "slow=%.17g attention=%.17g mscale=%.17g mscale_all=%.17g truncate=%d\n",
      static_cast<int>(rope.kind), rope.theta, rope.rotary_dim, rope.factor,
      rope.original_max_position, rope.low_freq_factor, rope.high_freq_factor, rope.beta_fast,
      rope.beta_slow, rope.attention_factor, rope.mscale, rope.mscale_all_dim, rope.truncate);
  for (const auto* factors : {&rope.short_factor, &rope.long_factor}) {
    text += "factors=";
    for (const double value : *factors) text += absl::StrFormat("%.17g,", value);
    text += "\n";
  }
  text += "windows=";
  for (const int32_t window : spec.layer_window) text += absl::StrFormat("%d,", window);
  text += "\n";
  return text;
}

}  // namespace penstock
