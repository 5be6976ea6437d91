#include "worker/model/cpu_ops.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "common/base/check.h"

namespace penstock {
namespace {

using kernels::PackedMatrix;

// Fewer tokens than this are not worth waking the other threads for a norm or RoPE.
constexpr int64_t kTokensPerPiece = 4;

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

CpuOps::CpuOps(const Options& o)
    : spec_(o.spec),
      groups_(o.groups),
      context_(o.kernels, o.pool),
      hidden_size_(spec_.hidden_size),
      heads_size_(static_cast<int64_t>(spec_.num_heads) * spec_.head_dim),
      kv_size_(static_cast<int64_t>(spec_.num_kv_heads) * spec_.head_dim),
      inner_size_(spec_.intermediate_size) {
  const int64_t tokens = o.max_tokens;
  hidden_ = kernels::AllocateFloats(tokens * hidden_size_);
  normed_ = kernels::AllocateFloats(tokens * hidden_size_);
  qkv_ = kernels::AllocateFloats(tokens * (heads_size_ + 2 * kv_size_));
  queries_ = kernels::AllocateFloats(tokens * heads_size_);
  attended_ = kernels::AllocateFloats(tokens * heads_size_);
  gated_ = kernels::AllocateFloats(tokens * inner_size_);
  last_ = kernels::AllocateFloats(static_cast<int64_t>(o.max_rows) * hidden_size_);
  places_.resize(static_cast<size_t>(spec_.num_layers));
  for (size_t g = 0; g < groups_.size(); ++g) {
    attention_.emplace_back(o.kernels, o.pool);
    for (size_t i = 0; i < groups_[g].layers.size(); ++i) {
      places_[static_cast<size_t>(groups_[g].layers[i])] = {static_cast<int32_t>(g),
                                                            static_cast<int32_t>(i)};
    }
  }
}

kernels::AttentionParams CpuOps::ParamsOf(const LayerPlace& place) const {
  const CpuKvGroup& group = groups_[static_cast<size_t>(place.group)];
  return {.layout = group.layout,
          .cache = group.cache,
          .layer = place.index,
          .num_heads = spec_.num_heads,
          .window = group.window};
}

void CpuOps::BeginStep(const CpuStep& step) {
  step_ = &step;
  for (size_t g = 0; g < groups_.size(); ++g) {
    attention_[g].Plan(step.groups[g].sequences, ParamsOf({static_cast<int32_t>(g), 0}));
  }
}

void CpuOps::Embed(const PackedMatrix& embedding, float* out) {
  // Rows lie in panels of 32 side by side: a token's panel is decoded and one column kept.
  context_.pool.Run(step_->num_tokens, kTokensPerPiece, [&](int64_t first, int64_t last, int thr) {
    float* tile = context_.scratch(thr);
    for (int64_t t = first; t < last; ++t) {
      const int32_t id = step_->token_ids[static_cast<size_t>(t)];
      CHECK(id >= 0 && id < embedding.num_outputs);
      const int64_t lane = id % kernels::kPanel;
      for (int64_t k0 = 0; k0 < hidden_size_; k0 += kernels::kTileInputs) {
        const int64_t k1 = std::min<int64_t>(k0 + kernels::kTileInputs, hidden_size_);
        context_.kernels.dequantize_panel(embedding, id / kernels::kPanel, k0, k1, tile);
        for (int64_t k = k0; k < k1; ++k) {
          out[t * hidden_size_ + k] = tile[(k - k0) * kernels::kPanel + lane];
        }
      }
    }
  });
}

void CpuOps::RmsNorm(const float* x, const std::vector<float>& weight, float* out) {
  const int64_t rows =
      out == last_.get() ? static_cast<int64_t>(step_->last.size()) : step_->num_tokens;
  const auto eps = static_cast<float>(spec_.rms_norm_eps);
  context_.pool.Run(rows, 4 * kTokensPerPiece, [&](int64_t first, int64_t last, int) {
    for (int64_t t = first; t < last; ++t) {
      context_.kernels.rms_norm(x + t * hidden_size_, weight.data(), out + t * hidden_size_,
                                hidden_size_, eps);
    }
  });
}

void CpuOps::Qkv(const float* x, const CpuLayer& layer, float* qkv) {
  const std::array<const PackedMatrix*, 3> weights = {&layer.q, &layer.k, &layer.v};
  kernels::Linear(context_, {.weights = weights,
                             .x = x,
                             .x_stride = hidden_size_,
                             .rows = step_->num_tokens,
                             .y = qkv,
                             .y_stride = heads_size_ + 2 * kv_size_});
}

void CpuOps::RopeAndCache(const float* qkv, const CpuLayer& layer, int32_t index, float* queries) {
  const LayerPlace& place = places_[static_cast<size_t>(index)];
  context_.pool.Run(step_->num_tokens, kTokensPerPiece, [&](int64_t first, int64_t last, int) {
    for (int64_t t = first; t < last; ++t) {
      RopeToken(qkv, layer, place, static_cast<int32_t>(t), queries);
    }
  });
}

void CpuOps::RopeToken(const float* qkv, const CpuLayer& layer, const LayerPlace& place,
                       int32_t token, float* queries) {
  const CpuKvGroup& group = groups_[static_cast<size_t>(place.group)];
  const CpuStep::Group& where = step_->groups[static_cast<size_t>(place.group)];
  const int32_t dim = spec_.head_dim;
  const int64_t half = spec_.rope.rotary_dim / 2;
  const float* in = qkv + token * (heads_size_ + 2 * kv_size_);
  kernels::RopeHeadArgs args = {.norm = layer.q_norm.empty() ? nullptr : layer.q_norm.data(),
                                .cos = step_->cos.data() + token * half,
                                .sin = step_->sin.data() + token * half,
                                .eps = static_cast<float>(spec_.rms_norm_eps),
                                .head_dim = dim,
                                .rotary_dim = spec_.rope.rotary_dim,
                                .scale = 1.0f / std::sqrt(static_cast<float>(dim))};
  for (int32_t h = 0; h < spec_.num_heads; ++h, in += dim) {
    args.in = in;
    args.out = queries + token * heads_size_ + static_cast<int64_t>(h) * dim;
    context_.kernels.rope_head(args);
  }
  args.norm = layer.k_norm.empty() ? nullptr : layer.k_norm.data();
  args.scale = 1.0f;
  const kernels::PagedKvLayout& layout = group.layout;
  const int32_t offset = where.token_offset[static_cast<size_t>(token)];
  float* block =
      group.cache + where.token_block[static_cast<size_t>(token)] * layout.block_floats();
  std::array<float, 512> rotated;  // head_dim is at most 512, checked at start
  for (int32_t h = 0; h < spec_.num_kv_heads; ++h, in += dim) {
    args.in = in;
    args.out = rotated.data();
    context_.kernels.rope_head(args);
    float* k = block + layout.k_offset(place.index, h) + offset;
    for (int32_t d = 0; d < dim; ++d) k[d * layout.block_size] = rotated[static_cast<size_t>(d)];
  }
  for (int32_t h = 0; h < spec_.num_kv_heads; ++h, in += dim) {
    std::memcpy(block + layout.v_offset(place.index, h) + static_cast<int64_t>(offset) * dim, in,
                static_cast<size_t>(dim) * sizeof(float));
  }
}

void CpuOps::Attend(const float* queries, int32_t index, float* out) {
  const LayerPlace& place = places_[static_cast<size_t>(index)];
  kernels::AttentionParams params = ParamsOf(place);
  params.q = queries;
  params.out = out;
  attention_[static_cast<size_t>(place.group)].Run(params);
}

void CpuOps::LinearAdd(const float* x, const PackedMatrix& w, float* y) {
  const std::array<const PackedMatrix*, 1> weights = {&w};
  kernels::Linear(context_, {.weights = weights,
                             .x = x,
                             .x_stride = w.num_inputs,
                             .rows = step_->num_tokens,
                             .y = y,
                             .y_stride = w.num_outputs,
                             .add = true});
}

void CpuOps::GatedLinear(const float* x, const PackedMatrix& gate, const PackedMatrix& up,
                         Activation activation, float* y) {
  kernels::GatedLinear(context_, {.gate = &gate,
                                  .up = &up,
                                  .activation = GateOf(activation),
                                  .x = x,
                                  .x_stride = hidden_size_,
                                  .rows = step_->num_tokens,
                                  .y = y,
                                  .y_stride = inner_size_});
}

void CpuOps::GatherLast(const float* hidden, float* last) {
  for (size_t i = 0; i < step_->last.size(); ++i) {
    std::memcpy(last + static_cast<int64_t>(i) * hidden_size_,
                hidden + step_->last[i] * hidden_size_,
                static_cast<size_t>(hidden_size_) * sizeof(float));
  }
}

void CpuOps::Head(const PackedMatrix& head, int32_t first, int32_t count, float* logits) {
  const std::array<const PackedMatrix*, 1> weights = {&head};
  kernels::Linear(context_, {.weights = weights,
                             .x = last_.get() + first * hidden_size_,
                             .x_stride = hidden_size_,
                             .rows = count,
                             .y = logits,
                             .y_stride = head.num_outputs});
}

}  // namespace penstock
