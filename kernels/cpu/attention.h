#pragma once

// The paged KV cache in f32 and causal attention over it, for prefill chunks and decode alike.
//
// A block: [layers of its group][K, V], K as [kv_heads][head_dim][block_size] (lanes run along
// positions), V as [kv_heads][block_size][head_dim] (lanes run along the head).
//
// Attention works in tiles of kAttentionTile absolute positions. Each tile's softmax and sums are
// computed from scratch and folded into the token's result in ascending order, so the result does
// not depend on how a step cut the sequence or on which thread did which tile.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/thread_pool.h"

namespace penstock::kernels {

struct PagedKvLayout {
  int32_t num_layers = 0;  // in this group
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t block_size = 16;  // tokens: 16, 32 or 64

  int64_t head_floats() const { return static_cast<int64_t>(head_dim) * block_size; }
  int64_t plane_floats() const { return head_floats() * num_kv_heads; }
  int64_t block_floats() const { return plane_floats() * 2 * num_layers; }
  int64_t k_offset(int32_t layer, int32_t head) const {
    return plane_floats() * 2 * layer + head_floats() * head;
  }
  int64_t v_offset(int32_t layer, int32_t head) const {
    return k_offset(layer, head) + plane_floats();
  }
};

// One sequence's part of a step: query tokens [first_token, first_token + num_tokens) of the step,
// at positions from start_position.
struct AttentionSequence {
  int32_t first_token = 0;
  int32_t num_tokens = 0;
  int32_t start_position = 0;
  const int32_t* blocks = nullptr;  // block of positions [i * block_size, (i + 1) * block_size)
};

struct AttentionParams {
  PagedKvLayout layout;
  const float* cache = nullptr;  // block b begins at cache + b * layout.block_floats()
  int32_t layer = 0;             // within the group
  int32_t num_heads = 0;
  int32_t window = 0;        // 0 = all; else each token sees this many positions, itself included
  const float* q = nullptr;  // [tokens, num_heads, head_dim], scaled
  float* out = nullptr;      // the same shape
};

class Attention {
 public:
  Attention(const CpuKernels& kernels, ThreadPool& pool) : kernels_(kernels), pool_(pool) {}

  // Cuts a step into units of work: once per step and KV group. `sequences` must outlive the runs.
  // May grow its buffers.
  void Plan(std::span<const AttentionSequence> sequences, const AttentionParams& params);
  // All units of the plan for one layer.
  void Run(const AttentionParams& params);

 private:
  // Some query tokens of one sequence, for one KV head, over some tiles.
  struct Unit {
    int32_t sequence;
    int32_t first_token;  // within the sequence's part
    int32_t num_tokens;
    int32_t kv_head;
    int32_t tile_begin;
    int32_t tile_end;
    int32_t partial;  // first row of the partial results, or -1: the unit sees all tiles
  };
  // Rows whose tiles were computed by several units.
  struct Merge {
    int32_t token;  // of the step
    int32_t kv_head;
    int32_t partial;  // tiles' partial results lie group rows apart
    int32_t num_tiles;
  };
  void PlanSequence(int32_t index, const AttentionParams& params, int64_t whole_units);
  void RunUnit(const AttentionParams& params, const Unit& unit, int thread);
  void RunMerge(const AttentionParams& params, const Merge& merge, int thread);

  const CpuKernels& kernels_;
  ThreadPool& pool_;
  std::span<const AttentionSequence> sequences_;
  std::vector<Unit> units_;
  std::vector<Merge> merges_;
  int32_t num_partials_ = 0;
  int32_t rows_per_unit_ = 0;
  int32_t head_dim_ = 0;
  std::vector<float> partial_out_;  // [partial rows, head_dim]
  std::vector<float> partial_max_;
  std::vector<float> partial_sum_;
  std::vector<float> scratch_;  // per thread
  int64_t scratch_floats_ = 0;  // of one thread
};

}  // namespace penstock::kernels
