// Embedding gather: a block a token, 16-byte copies. Bound by memory, and small.

#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/launch.h"

namespace penstock::kernels {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads)
    EmbeddingKernel(const __grid_constant__ EmbeddingParams p) {
  const int64_t token = blockIdx.x;
  AllowNext();
  WaitForPrevious();
  int32_t id = p.ids[token];
  if (id < 0 && p.last_tokens != nullptr) id = p.last_tokens[-id];
  const int64_t row = id >= 0 && id < p.vocab_size ? id : 0;
  const auto* in = reinterpret_cast<const Bf16x8*>(p.table + row * p.hidden);
  auto* out = reinterpret_cast<Bf16x8*>(p.out + token * p.hidden);
  for (int v = threadIdx.x; v < p.hidden / 8; v += kThreads) out[v] = in[v];
}

}  // namespace

cudaError_t LaunchEmbedding(const EmbeddingParams& params, cudaStream_t stream) {
  if (params.num_tokens == 0) return cudaSuccess;
  if (params.hidden <= 0 || params.hidden % 8 != 0) return cudaErrorInvalidValue;
  return LaunchDependent(EmbeddingKernel, dim3(params.num_tokens), kThreads, 0, stream, params);
}

}  // namespace penstock::kernels
