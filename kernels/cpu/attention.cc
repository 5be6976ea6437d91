#include "kernels/cpu/attention.h"

#include <algorithm>
#include <cstring>

namespace penstock::kernels {
namespace {

constexpr int32_t kUnitRows = 48;         // (token, head) rows of one unit, about
constexpr int32_t kUnitsPerThread = 4;    // fewer than this: decode tokens are cut by tiles
constexpr int32_t kMaxBlocksPerTile = 4;  // of 16 tokens

int32_t FirstTile(const AttentionSequence& s, int32_t token, int32_t window) {
  const int32_t position = s.start_position + token;
  return window > 0 ? std::max(0, position - window + 1) / kAttentionTile : 0;
}

}  // namespace

void Attention::Plan(std::span<const AttentionSequence> sequences, const AttentionParams& params) {
  sequences_ = sequences;
  units_.clear();
  merges_.clear();
  num_partials_ = 0;
  head_dim_ = params.layout.head_dim;
  const int32_t group = params.num_heads / params.layout.num_kv_heads;
  rows_per_unit_ = std::max(group, kUnitRows / group * group);
  int64_t whole_units = 0;
  for (const AttentionSequence& s : sequences) {
    whole_units += (static_cast<int64_t>(s.num_tokens) * group + rows_per_unit_ - 1) /
                   rows_per_unit_ * params.layout.num_kv_heads;
  }
  for (size_t i = 0; i < sequences.size(); ++i) {
    PlanSequence(static_cast<int32_t>(i), params, whole_units);
  }
  const size_t rows = static_cast<size_t>(num_partials_);
  if (partial_max_.size() < rows) {
    partial_max_.resize(rows);
    partial_sum_.resize(rows);
  }
  if (partial_out_.size() < rows * head_dim_) partial_out_.resize(rows * head_dim_);
  // q, tile result and accumulator; scores; max and sum of both; ranges.
  scratch_floats_ = static_cast<int64_t>(rows_per_unit_) * (3 * head_dim_ + kAttentionTile + 6);
  const size_t floats = static_cast<size_t>(scratch_floats_) * pool_.num_threads();
  if (scratch_.size() < floats) scratch_.resize(floats);
}

void Attention::PlanSequence(int32_t index, const AttentionParams& params, int64_t whole_units) {
  const AttentionSequence& s = sequences_[static_cast<size_t>(index)];
  const int32_t group = params.num_heads / params.layout.num_kv_heads;
  const int32_t tokens_per_unit = rows_per_unit_ / group;
  const bool few = whole_units < static_cast<int64_t>(kUnitsPerThread) * pool_.num_threads();
  for (int32_t first = 0; first < s.num_tokens; first += tokens_per_unit) {
    const int32_t tokens = std::min(tokens_per_unit, s.num_tokens - first);
    const int32_t tile_begin = FirstTile(s, first, params.window);
    const int32_t tile_end = (s.start_position + first + tokens - 1) / kAttentionTile + 1;
    const bool split = few && tokens == 1 && tile_end - tile_begin > 1 && pool_.num_threads() > 1;
    for (int32_t head = 0; head < params.layout.num_kv_heads; ++head) {
      if (!split) {
        units_.push_back({index, first, tokens, head, tile_begin, tile_end, -1});
        continue;
      }
      merges_.push_back({s.first_token + first, head, num_partials_, tile_end - tile_begin});
      for (int32_t tile = tile_begin; tile < tile_end; ++tile) {
        units_.push_back({index, first, tokens, head, tile, tile + 1, num_partials_});
        num_partials_ += group;
      }
    }
  }
}

void Attention::Run(const AttentionParams& params) {
  const auto count = static_cast<int64_t>(units_.size());
  const int64_t grain = std::max<int64_t>(1, count / (pool_.num_threads() * 8));
  pool_.Run(count, grain, [&](int64_t first, int64_t last, int thread) {
    for (int64_t i = first; i < last; ++i) RunUnit(params, units_[static_cast<size_t>(i)], thread);
  });
  for (const Merge& merge : merges_) RunMerge(params, merge, 0);
}

void Attention::RunUnit(const AttentionParams& params, const Unit& unit, int thread) {
  const AttentionSequence& s = sequences_[static_cast<size_t>(unit.sequence)];
  const PagedKvLayout& layout = params.layout;
  const int32_t group = params.num_heads / layout.num_kv_heads;
  const int32_t rows = unit.num_tokens * group;
  const int64_t dim = head_dim_;

  float* q = scratch_.data() + scratch_floats_ * thread;
  float* tile_out = q + rows_per_unit_ * dim;
  float* acc = tile_out + rows_per_unit_ * dim;
  float* scores = acc + rows_per_unit_ * dim;
  float* tile_max = scores + static_cast<int64_t>(rows_per_unit_) * kAttentionTile;
  float* tile_sum = tile_max + rows_per_unit_;
  float* max = tile_sum + rows_per_unit_;
  float* sum = max + rows_per_unit_;
  auto* begin = reinterpret_cast<int32_t*>(sum + rows_per_unit_);
  int32_t* end = begin + rows_per_unit_;

  const int64_t token_stride = static_cast<int64_t>(params.num_heads) * dim;
  const int64_t first_row = (s.first_token + unit.first_token) * token_stride +
                            static_cast<int64_t>(unit.kv_head) * group * dim;
  for (int32_t t = 0; t < unit.num_tokens; ++t) {
    std::memcpy(q + t * group * dim, params.q + first_row + t * token_stride,
                static_cast<size_t>(group * dim) * sizeof(float));
  }
  std::fill(sum, sum + rows, 0.0f);

  const int32_t blocks_per_tile = kAttentionTile / layout.block_size;
  const int32_t last_position = s.start_position + unit.first_token + unit.num_tokens - 1;
  for (int32_t tile = unit.tile_begin; tile < unit.tile_end; ++tile) {
    const int32_t base = tile * kAttentionTile;
    const float* k_blocks[kMaxBlocksPerTile] = {};
    const float* v_blocks[kMaxBlocksPerTile] = {};
    for (int32_t b = 0; b < blocks_per_tile; ++b) {
      if (base + b * layout.block_size > last_position) break;  // the table ends here
      const float* block =
          params.cache + s.blocks[tile * blocks_per_tile + b] * layout.block_floats();
      k_blocks[b] = block + layout.k_offset(params.layer, unit.kv_head);
      v_blocks[b] = block + layout.v_offset(params.layer, unit.kv_head);
    }
    for (int32_t r = 0; r < rows; ++r) {
      const int32_t position = s.start_position + unit.first_token + r / group;
      const int32_t first = params.window > 0 ? position - params.window + 1 : 0;
      begin[r] = std::clamp(first - base, 0, kAttentionTile);
      end[r] = std::clamp(position + 1 - base, 0, kAttentionTile);
    }
    const AttentionTileArgs args = {.q = q,
                                    .rows = rows,
                                    .head_dim = layout.head_dim,
                                    .k_blocks = k_blocks,
                                    .v_blocks = v_blocks,
                                    .block_size = layout.block_size,
                                    .begin = begin,
                                    .end = end,
                                    .scores = scores,
                                    .out = tile_out,
                                    .max = tile_max,
                                    .sum = tile_sum};
    kernels_.attention_tile(args);
    if (unit.partial >= 0) {
      std::memcpy(partial_out_.data() + unit.partial * dim, tile_out,
                  static_cast<size_t>(rows * dim) * sizeof(float));
      std::copy(tile_max, tile_max + rows, partial_max_.begin() + unit.partial);
      std::copy(tile_sum, tile_sum + rows, partial_sum_.begin() + unit.partial);
      return;
    }
    for (int32_t r = 0; r < rows; ++r) {
      kernels_.attention_merge(acc + r * dim, max + r, sum + r, tile_out + r * dim, tile_max[r],
                               tile_sum[r], layout.head_dim);
    }
  }
  for (int32_t r = 0; r < rows; ++r) {
    float* out = params.out + first_row + r / group * token_stride + r % group * dim;
    kernels_.attention_finish(acc + r * dim, sum[r], out, layout.head_dim);
  }
}

void Attention::RunMerge(const AttentionParams& params, const Merge& merge, int thread) {
  const int32_t group = params.num_heads / params.layout.num_kv_heads;
  const int64_t dim = head_dim_;
  float* acc = scratch_.data() + scratch_floats_ * thread;
  for (int32_t g = 0; g < group; ++g) {
    float max = 0;
    float sum = 0;
    for (int32_t tile = 0; tile < merge.num_tiles; ++tile) {
      const int64_t row = merge.partial + static_cast<int64_t>(tile) * group + g;
      kernels_.attention_merge(acc, &max, &sum, partial_out_.data() + row * dim,
                               partial_max_[static_cast<size_t>(row)],
                               partial_sum_[static_cast<size_t>(row)], head_dim_);
    }
    const int64_t head = static_cast<int64_t>(merge.kv_head) * group + g;
    float* out = params.out + (static_cast<int64_t>(merge.token) * params.num_heads + head) * dim;
    kernels_.attention_finish(acc, sum, out, head_dim_);
  }
}

}  // namespace penstock::kernels
