#include "worker/model/cuda_ops.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "common/base/check.h"
#include "kernels/cuda/activation.h"
#include "kernels/cuda/decode_attention.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/prefill_attention.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/rope_kv.h"
#include "kernels/cuda/skinny_gemm.h"

namespace penstock {
namespace {

// The fastest kernel by rows, as measured on an H200 (docs/kernels.md).
constexpr int32_t kMaxVectorRows = 1;
constexpr int32_t kMaxSkinnyRows = 16;
static_assert(kMaxSkinnyRows <= kernels::kMaxSkinnyRows);
constexpr int32_t kMaxHidden = 16'384;

kernels::GateActivation GateOf(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return kernels::GateActivation::kSilu;
    case Activation::kGeluTanh:
      return kernels::GateActivation::kGeluTanh;
    case Activation::kGelu:
      return kernels::GateActivation::kGelu;
  }
  return kernels::GateActivation::kSilu;
}

}  // namespace

// Elements of each buffer.
struct CudaOps::Sizes {
  explicit Sizes(const Options& o) {
    const ModelSpec& spec = o.spec;
    const auto tokens = static_cast<size_t>(o.max_tokens);
    const auto heads = static_cast<size_t>(spec.num_heads) * spec.head_dim;
    const auto kv = static_cast<size_t>(spec.num_kv_heads) * spec.head_dim;
    hidden = tokens * spec.hidden_size;
    qkv = tokens * (heads + 2 * kv);
    queries = tokens * heads;
    gated = tokens * spec.intermediate_size;
    last = static_cast<size_t>(o.max_rows) * spec.hidden_size;
    logits = static_cast<size_t>(o.max_rows) * spec.vocab_size;
    counters = static_cast<size_t>(o.max_rows) * spec.num_kv_heads;
    constexpr int kLongest = 1 << 30;
    for (int rows = 1; rows <= o.max_rows; ++rows) {
      const int splits =
          kernels::PlanDecodeSplits(rows, spec.num_kv_heads, kLongest, o.num_multiprocessors);
      attention = std::max(attention, kernels::DecodeAttentionWorkspaceBytes(
                                          rows, spec.num_heads, spec.head_dim, splits));
    }
  }
  size_t bytes() const {
    const size_t halves = 2 * hidden + qkv + 2 * queries + 3 * gated + last;
    return 2 * halves + 4 * (2 * logits + counters) + attention + kernels::Gemm::kWorkspaceBytes;
  }
  size_t hidden = 0, qkv = 0, queries = 0, gated = 0, last = 0, logits = 0, counters = 0;
  size_t attention = 0;  // bytes
};

absl::Status CudaOps::CheckSpec(const ModelSpec& spec) {
  const int32_t dim = spec.head_dim;
  if (dim != 16 && dim != 32 && dim != 64 && dim != 96 && dim != 128 && dim != 256) {
    return Unimplemented("head_dim %d: the CUDA kernels have 16, 32, 64, 96, 128 and 256", dim);
  }
  if (spec.num_heads / spec.num_kv_heads > kernels::kMaxHeadsPerKvHead) {
    return Unimplemented(
        "%d attention heads over %d KV heads: the CUDA kernels have at most %d "
        "heads per KV head",
        spec.num_heads, spec.num_kv_heads, kernels::kMaxHeadsPerKvHead);
  }
  if (spec.hidden_size % 8 != 0 || spec.hidden_size > kMaxHidden ||
      spec.intermediate_size % 8 != 0) {
    return Unimplemented(
        "hidden size %d, intermediate size %d: the CUDA kernels need multiples of 8, and a hidden "
        "size of at most %d",
        spec.hidden_size, spec.intermediate_size, kMaxHidden);
  }
  return absl::OkStatus();
}

int64_t CudaOps::MemoryBytes(const Options& options) {
  return static_cast<int64_t>(Sizes(options).bytes());
}

CudaOps::CudaOps(const Options& o)
    : options_(o),
      spec_(o.spec),
      stream_(o.stream),
      heads_size_(spec_.num_heads * spec_.head_dim),
      kv_size_(spec_.num_kv_heads * spec_.head_dim) {
  places_.resize(static_cast<size_t>(spec_.num_layers));
  for (size_t g = 0; g < o.groups.size(); ++g) {
    for (size_t i = 0; i < o.groups[g].layers.size(); ++i) {
      places_[static_cast<size_t>(o.groups[g].layers[i])] = {static_cast<int32_t>(g),
                                                             static_cast<int32_t>(i)};
    }
  }
}

absl::StatusOr<std::unique_ptr<CudaOps>> CudaOps::Create(const Options& options) {
  RETURN_IF_ERROR(CheckSpec(options.spec));
  std::unique_ptr<CudaOps> ops(new CudaOps(options));
  RETURN_IF_ERROR(ops->Allocate());
  std::string error;
  ops->gemm_ = kernels::Gemm::Create(ops->gemm_workspace_.data(), &error);
  if (ops->gemm_ == nullptr) {
    return FailedPrecondition(
        "cuBLASLt is needed and cannot be used: %s; install CUDA's libraries or put their folder "
        "into LD_LIBRARY_PATH",
        error);
  }
  return ops;
}

absl::Status CudaOps::Allocate() {
  const Sizes sizes(options_);
  constexpr char kWhat[] = "activations (--max-num-batched-tokens, --max-num-seqs)";
  const auto take = [&kWhat](auto* array, size_t count) -> absl::Status {
    using T = std::remove_pointer_t<decltype(array->data())>;
    ASSIGN_OR_RETURN(*array, AllocateDevice<T>(count, kWhat));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(take(&hidden_, sizes.hidden));
  RETURN_IF_ERROR(take(&normed_, sizes.hidden));
  RETURN_IF_ERROR(take(&qkv_, sizes.qkv));
  RETURN_IF_ERROR(take(&queries_, sizes.queries));
  RETURN_IF_ERROR(take(&attended_, sizes.queries));
  RETURN_IF_ERROR(take(&gate_up_, 2 * sizes.gated));
  RETURN_IF_ERROR(take(&gated_, sizes.gated));
  RETURN_IF_ERROR(take(&last_, sizes.last));
  RETURN_IF_ERROR(take(&logits_, sizes.logits));
  RETURN_IF_ERROR(take(&logits_scratch_, sizes.logits));
  RETURN_IF_ERROR(take(&attention_workspace_, sizes.attention));
  RETURN_IF_ERROR(take(&attention_counters_, sizes.counters));
  RETURN_IF_ERROR(take(&gemm_workspace_, kernels::Gemm::kWorkspaceBytes));
  return CudaStatus(
      cudaMemsetAsync(attention_counters_.data(), 0, attention_counters_.bytes(), stream_),
      "clearing counters");
}

void CudaOps::Note(cudaError_t error, const char* what) {
  if (error != cudaSuccess && status_.ok()) status_ = CudaStatus(error, what);
}

absl::Status CudaOps::TakeStatus() { return std::exchange(status_, absl::OkStatus()); }

void CudaOps::BeginStep(const StepView& view) { view_ = view; }

int32_t CudaOps::PlanSplits(int32_t num_decode, int32_t max_seq_len) const {
  return kernels::PlanDecodeSplits(num_decode, spec_.num_kv_heads, max_seq_len,
                                   options_.num_multiprocessors);
}

kernels::PagedKv CudaOps::KvOf(int32_t layer) const {
  const LayerPlace& place = places_[static_cast<size_t>(layer)];
  const CudaKvGroup& group = options_.groups[static_cast<size_t>(place.group)];
  return kernels::MakePagedKv(group.cache, static_cast<int32_t>(group.layers.size()), place.index,
                              spec_.num_kv_heads, options_.block_size, spec_.head_dim);
}

void CudaOps::Embed(const CudaMatrix& embedding, __nv_bfloat16* out) {
  const CudaStep& step = *view_.step;
  Note(kernels::LaunchEmbedding({.ids = InStep<int32_t>(step.layout.ids),
                                 .last_tokens = view_.last_tokens,
                                 .table = embedding.weight,
                                 .out = out,
                                 .num_tokens = step.shape.num_tokens,
                                 .vocab_size = embedding.num_outputs,
                                 .hidden = spec_.hidden_size},
                                stream_),
       "embedding");
}

void CudaOps::RmsNorm(const __nv_bfloat16* x, const __nv_bfloat16* weight, __nv_bfloat16* out) {
  const CudaStep& step = *view_.step;
  const bool gather = out == last_.data();
  Note(kernels::LaunchRmsNorm({.x = gather ? hidden_.data() : x,
                               .rows = gather ? InStep<int32_t>(step.layout.last) : nullptr,
                               .weight = weight,
                               .out = out,
                               .x_stride = spec_.hidden_size,
                               .num_rows = gather ? step.shape.num_last : step.shape.num_tokens,
                               .hidden = spec_.hidden_size,
                               .eps = static_cast<float>(spec_.rms_norm_eps)},
                              stream_),
       "RMSNorm");
}

void CudaOps::GatherLast(const __nv_bfloat16* hidden, __nv_bfloat16* last) {
  CHECK(hidden == hidden_.data() && last == last_.data());
}

void CudaOps::Linear(const __nv_bfloat16* x, const CudaMatrix& w, int32_t num_rows,
                     const __nv_bfloat16* residual, __nv_bfloat16* out, float* out_f32) {
  if (num_rows <= kMaxVectorRows) {
    Note(kernels::LaunchGemv({.x = x,
                              .weight = w.weight,
                              .bias = w.bias,
                              .residual = residual,
                              .out = out,
                              .out_f32 = out_f32,
                              .num_rows = num_rows,
                              .in_size = w.num_inputs,
                              .out_size = w.num_outputs},
                             stream_),
         "GEMV");
    return;
  }
  if (num_rows <= kMaxSkinnyRows && w.num_inputs % 32 == 0) {
    Note(kernels::LaunchSkinnyGemm({.x = x,
                                    .weight = w.weight,
                                    .bias = w.bias,
                                    .residual = residual,
                                    .out = out,
                                    .out_f32 = out_f32,
                                    .num_rows = num_rows,
                                    .in_size = w.num_inputs,
                                    .out_size = w.num_outputs},
                                   stream_),
         "skinny GEMM");
    return;
  }
  const std::string error = gemm_->Run({.x = x,
                                        .weight = w.weight,
                                        .bias = w.bias,
                                        .residual = residual,
                                        .out = out,
                                        .out_f32 = out_f32,
                                        .num_rows = num_rows,
                                        .in_size = w.num_inputs,
                                        .out_size = w.num_outputs},
                                       stream_);
  if (!error.empty() && status_.ok()) status_ = Internal("%s", error);
}

absl::Status CudaOps::TuneLinears(const CudaWeights& weights, int32_t num_rows) {
  if (num_rows <= kMaxSkinnyRows) return absl::OkStatus();
  const auto tune = [&](CudaMatrix w, const __nv_bfloat16* x, __nv_bfloat16* out, float* out_f32,
                        bool add, auto weight_of) -> absl::Status {
    std::vector<const __nv_bfloat16*> all;
    for (const CudaLayer& layer : weights.layers) all.push_back(weight_of(layer));
    const std::string error = gemm_->Tune({.x = x,
                                           .weight = w.weight,
                                           .bias = w.bias,
                                           .residual = add ? out : nullptr,
                                           .out = out,
                                           .out_f32 = out_f32,
                                           .num_rows = num_rows,
                                           .in_size = w.num_inputs,
                                           .out_size = w.num_outputs},
                                          all, stream_);
    if (!error.empty()) return Internal("%s", error);
    return absl::OkStatus();
  };
  const CudaLayer& first = weights.layers.front();
  CudaMatrix qkv = first.qkv;
  qkv.bias = nullptr;
  CudaMatrix gate_up = first.gate;
  gate_up.num_outputs += first.up.num_outputs;
  const auto of = [](auto member) {
    return [member](const CudaLayer& layer) { return (layer.*member).weight; };
  };
  RETURN_IF_ERROR(tune(qkv, normed_.data(), qkv_.data(), nullptr, false, of(&CudaLayer::qkv)));
  RETURN_IF_ERROR(
      tune(first.o, attended_.data(), hidden_.data(), nullptr, true, of(&CudaLayer::o)));
  RETURN_IF_ERROR(
      tune(gate_up, normed_.data(), gate_up_.data(), nullptr, false, of(&CudaLayer::gate)));
  RETURN_IF_ERROR(
      tune(first.down, gated_.data(), hidden_.data(), nullptr, true, of(&CudaLayer::down)));
  const __nv_bfloat16* head = weights.head().weight;
  return tune(weights.head(), last_.data(), nullptr, logits_.data(), false,
              [head](const CudaLayer&) { return head; });
}

void CudaOps::Qkv(const __nv_bfloat16* x, const CudaLayer& layer, __nv_bfloat16* qkv) {
  CudaMatrix unbiased = layer.qkv;
  unbiased.bias = nullptr;  // added before RoPE, in f32
  Linear(x, unbiased, view_.step->shape.num_tokens, nullptr, qkv, nullptr);
}

void CudaOps::RopeAndCache(const __nv_bfloat16* qkv, const CudaLayer& layer, int32_t index,
                           __nv_bfloat16* queries) {
  const CudaStep& step = *view_.step;
  const int64_t group = places_[static_cast<size_t>(index)].group;
  Note(kernels::LaunchRopeKv(
           {.qkv = qkv,
            .bias = layer.qkv.bias,
            .q_norm = layer.q_norm,
            .k_norm = layer.k_norm,
            .cos_sin = view_.cos_sin,
            .positions = InStep<int32_t>(step.layout.positions),
            .kv_slots = InStep<int64_t>(step.layout.kv_slots) + group * step.shape.num_tokens,
            .q_out = queries,
            .kv = KvOf(index),
            .num_tokens = step.shape.num_tokens,
            .num_heads = spec_.num_heads,
            .rotary_dim = spec_.rope.rotary_dim,
            .eps = static_cast<float>(spec_.rms_norm_eps)},
           stream_),
       "RoPE");
}

void CudaOps::Attend(const __nv_bfloat16* queries, int32_t index, __nv_bfloat16* out) {
  const CudaStep& step = *view_.step;
  const CudaStepShape& shape = step.shape;
  const int64_t group = places_[static_cast<size_t>(index)].group;
  const int32_t window = options_.groups[static_cast<size_t>(group)].window;
  const kernels::PagedKv kv = KvOf(index);
  const float scale = 1.0f / std::sqrt(static_cast<float>(spec_.head_dim));
  const auto* blocks = InStep<int32_t>(step.layout.blocks);
  Note(kernels::LaunchDecodeAttention(
           {.q = queries,
            .kv = kv,
            .block_tables = blocks,
            .table_begin = InStep<int32_t>(step.layout.decode_tables) + group * shape.num_decode,
            .seq_lens = InStep<int32_t>(step.layout.seq_lens),
            .out = out,
            .workspace = attention_workspace_.data(),
            .counters = attention_counters_.data(),
            .num_seqs = shape.num_decode,
            .num_heads = spec_.num_heads,
            .num_splits = view_.num_splits,
            .window = window,
            .scale = scale},
           stream_),
       "decode attention");
  Note(kernels::LaunchPrefillAttention(
           {.q = queries,
            .kv = kv,
            .block_tables = blocks,
            .table_begin = InStep<int32_t>(step.layout.prefill_tables) + group * shape.num_prefill,
            .token_begin = InStep<int32_t>(step.layout.token_begin),
            .start_pos = InStep<int32_t>(step.layout.start_pos),
            .out = out,
            .num_seqs = shape.num_prefill,
            .max_new_tokens = step.max_new_tokens,
            .num_heads = spec_.num_heads,
            .window = window,
            .scale = scale},
           stream_),
       "prefill attention");
}

void CudaOps::LinearAdd(const __nv_bfloat16* x, const CudaMatrix& w, __nv_bfloat16* y) {
  Linear(x, w, view_.step->shape.num_tokens, y, y, nullptr);
}

void CudaOps::GatedLinear(const __nv_bfloat16* x, const CudaMatrix& gate, const CudaMatrix& up,
                          Activation activation, __nv_bfloat16* y) {
  CHECK(up.weight == gate.weight + int64_t{gate.num_outputs} * gate.num_inputs);
  CudaMatrix both = gate;
  both.num_outputs += up.num_outputs;
  const int32_t num_rows = view_.step->shape.num_tokens;
  Linear(x, both, num_rows, nullptr, gate_up_.data(), nullptr);
  Note(kernels::LaunchGateUp({.gate_up = gate_up_.data(),
                              .out = y,
                              .num_rows = num_rows,
                              .size = gate.num_outputs,
                              .activation = GateOf(activation)},
                             stream_),
       "gated activation");
}

void CudaOps::Head(const CudaMatrix& head) {
  Linear(last_.data(), head, view_.step->shape.num_last, nullptr, nullptr, logits_.data());
}

}  // namespace penstock
