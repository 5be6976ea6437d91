// QKV split + bias + qk-norm + RoPE + paged KV write. One warp handles one head of one token, so
// the rotation's partner is at most a shuffle or a shared row away. Bound by memory: every byte of
// qkv is read once and written once.

#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rope_kv.h"

namespace penstock::kernels {
namespace {

constexpr int kWarps = 8;
constexpr int kMaxHeadDim = 256;

__global__ void __launch_bounds__(kWarps* kWarpSize)
    RopeKvKernel(const __grid_constant__ RopeKvParams p) {
  __shared__ float rows[kWarps][kMaxHeadDim];
  const int warp = threadIdx.x / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  const int64_t token = blockIdx.x;
  const int num_kv = p.kv.num_kv_heads;
  const int head = blockIdx.y * kWarps + warp;  // over q, k and v heads
  const int total_heads = p.num_heads + 2 * num_kv;
  AllowNext();
  WaitForPrevious();
  if (head >= total_heads) return;
  const int dim = p.kv.head_dim;
  const bool is_q = head < p.num_heads;
  const bool is_v = head >= p.num_heads + num_kv;
  const __nv_bfloat16* in = p.qkv + (token * total_heads + head) * dim;

  float* row = rows[warp];
  float sum = 0;
  for (int i = lane; i < dim; i += kWarpSize) {
    float x = __bfloat162float(in[i]);
    if (p.bias != nullptr) x += __bfloat162float(p.bias[head * dim + i]);
    row[i] = x;
    sum += x * x;
  }
  const __nv_bfloat16* norm = is_v ? nullptr : (is_q ? p.q_norm : p.k_norm);
  float scale = 1.0f;
  if (norm != nullptr) scale = rsqrtf(WarpSum(sum) / dim + p.eps);
  __syncwarp();

  __nv_bfloat16* out;
  if (is_q) {
    out = p.q_out + (token * p.num_heads + head) * dim;
  } else {
    const int64_t slot = p.kv_slots[token];
    if (slot < 0) return;
    const int kv_head = (head - p.num_heads) % num_kv;
    out = p.kv.Row(static_cast<int32_t>(slot / p.kv.block_size), kv_head,
                   static_cast<int32_t>(slot % p.kv.block_size)) +
          (is_v ? p.kv.v_offset : 0);
  }
  const auto normed = [&](int i) {
    return norm == nullptr ? row[i] : row[i] * scale * __bfloat162float(norm[i]);
  };
  const int half = p.rotary_dim / 2;
  const float* table = p.cos_sin + static_cast<int64_t>(p.positions[token]) * p.rotary_dim;
  for (int i = lane; i < dim; i += kWarpSize) {
    float x = normed(i);
    if (!is_v && i < p.rotary_dim) {
      const int pair = i < half ? i : i - half;
      const float partner = normed(i < half ? i + half : i - half);
      x = i < half ? x * table[pair] - partner * table[half + pair]
                   : x * table[pair] + partner * table[half + pair];
    }
    out[i] = __float2bfloat16(x);
  }
}

}  // namespace

cudaError_t LaunchRopeKv(const RopeKvParams& params, cudaStream_t stream) {
  if (params.num_tokens == 0) return cudaSuccess;
  const int dim = params.kv.head_dim;
  if (dim <= 0 || dim > kMaxHeadDim || params.rotary_dim > dim || params.rotary_dim % 2 != 0) {
    return cudaErrorInvalidValue;
  }
  const int heads = params.num_heads + 2 * params.kv.num_kv_heads;
  const dim3 grid(params.num_tokens, (heads + kWarps - 1) / kWarps);
  return LaunchDependent(RopeKvKernel, grid, kWarps * kWarpSize, 0, stream, params);
}

}  // namespace penstock::kernels
