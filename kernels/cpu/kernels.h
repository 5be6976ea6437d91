#pragma once

// The CPU kernels of one instruction set, as a table of functions. All sets give the same bits: one
// fused multiply-add chain per output with the inputs ascending, sums over a row in sixteen fixed
// lanes, attention in tiles of kAttentionTile absolute positions. Nothing here allocates or locks.

#include <cstdint>

#include "kernels/cpu/packed_matrix.h"

namespace penstock::kernels {

enum class Isa { kScalar, kAvx2, kAvx512 };

enum class GateActivation { kSilu, kGeluTanh, kGelu };

inline constexpr int32_t kAttentionTile = 64;  // positions
// Rows of x that one LinearPanel call takes at most, and floats of its scratch.
inline constexpr int32_t kMaxPanelRows = 128;
inline constexpr int32_t kTileInputs = 256;
inline constexpr int64_t kPanelScratchFloats = kTileInputs * kPanel;

// One tile of attention for some rows (query token, head) that share one KV head.
struct AttentionTileArgs {
  const float* q = nullptr;  // [rows, head_dim], scaled by the softmax scale
  int32_t rows = 0;
  int32_t head_dim = 0;  // multiple of 16
  // The KV blocks of the tile, in order, as many as kAttentionTile / block_size; those outside
  // every row's range are not touched. k_blocks[i]: [head_dim, block_size]; v: [block_size,
  // head_dim].
  const float* const* k_blocks = nullptr;
  const float* const* v_blocks = nullptr;
  int32_t block_size = 0;  // 16, 32 or 64
  const int32_t* begin =
      nullptr;                   // [rows] first and one past the last position in the tile, 0..64;
  const int32_t* end = nullptr;  // a row with begin >= end sees nothing of it
  float* scores = nullptr;       // scratch [rows, kAttentionTile]
  float* out = nullptr;          // [rows, head_dim]: sum of exp(score - max) * v
  float* max = nullptr;          // [rows]
  float* sum = nullptr;          // [rows]; 0 for a row that sees nothing
};

// q, k: rotate pairs (i, i + rotary_dim / 2) of each head after an optional RMSNorm.
struct RopeHeadArgs {
  const float* in = nullptr;    // [head_dim]
  const float* norm = nullptr;  // [head_dim] or null
  const float* cos = nullptr;   // [rotary_dim / 2]
  const float* sin = nullptr;
  float eps = 0;
  int32_t head_dim = 0;
  int32_t rotary_dim = 0;
  float scale = 1;       // multiplies the result
  float* out = nullptr;  // [head_dim]
};

struct CpuKernels {
  const char* name;
  // c[rows, 32] = x[rows, num_inputs] * the panel's weights. rows <= kMaxPanelRows.
  void (*linear_panel)(const PackedMatrix& w, int64_t panel, const float* x, int64_t x_stride,
                       int32_t rows, float* scratch, float* c);
  // weights[k - k0, 32] of a panel's inputs [k0, k1); both multiples of the format's block.
  void (*dequantize_panel)(const PackedMatrix& w, int64_t panel, int64_t k0, int64_t k1,
                           float* weights);
  // out = x / sqrt(mean(x^2) + eps) * weight
  void (*rms_norm)(const float* x, const float* weight, float* out, int64_t n, float eps);
  // out = act(gate) * up
  void (*gate)(GateActivation activation, const float* gate, const float* up, float* out,
               int64_t n);
  void (*add)(const float* a, const float* b, float* out, int64_t n);
  void (*rope_head)(const RopeHeadArgs& args);
  void (*attention_tile)(const AttentionTileArgs& args);
  // Folds a later tile's (out, max, sum) into an accumulator, which begins with sum = 0.
  void (*attention_merge)(float* out, float* max, float* sum, const float* tile_out, float tile_max,
                          float tile_sum, int32_t head_dim);
  // out = acc / sum
  void (*attention_finish)(const float* acc, float sum, float* out, int32_t head_dim);
  // The largest of n values; *finite is false when there is a NaN or an infinity.
  float (*max_finite)(const float* x, int64_t n, bool* finite);
  // out[i] = exp((x[i] - shift) * scale); returns their sum.
  float (*exp_sum)(const float* x, float shift, float scale, float* out, int64_t n);
};

Isa DetectIsa();  // the best of this machine
bool IsaSupported(Isa isa);
const CpuKernels& KernelsFor(Isa isa);  // isa must be supported

}  // namespace penstock::kernels
