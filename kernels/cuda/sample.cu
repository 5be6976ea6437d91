// Sampling, one block a row. Each limit (top-k, top-p) is found by narrowing a threshold over
// order-preserving integer keys, seven pivots a pass, eleven passes for all 32 bits: exact, and the
// same on every run because every sum has a fixed order. Bound by L2 reads of a row per pass;
// greedy rows need one pass.

#include <cfloat>

#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/philox.cuh"
#include "kernels/cuda/sample.h"

namespace penstock::kernels {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kPivots = 7;

// Order-preserving: a < b exactly when Key(a) < Key(b).
__device__ __forceinline__ uint32_t Key(float value) {
  const uint32_t bits = __float_as_uint(value);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

struct Best {
  float value;
  int32_t index;
};

// The larger value; of equals the smaller index.
__device__ __forceinline__ Best Better(Best a, Best b) {
  return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a;
}

struct Shared {
  Best best[kWarps];
  float sums[kWarps][kPivots];
  float totals[kPivots];
  int flag;
};

__device__ Best BlockBest(Best mine, Shared& shared) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const Best other = {__shfl_xor_sync(0xffffffffu, mine.value, offset),
                        __shfl_xor_sync(0xffffffffu, mine.index, offset)};
    mine = Better(mine, other);
  }
  if (threadIdx.x % kWarpSize == 0) shared.best[threadIdx.x / kWarpSize] = mine;
  __syncthreads();
  Best result = shared.best[0];
  for (int w = 1; w < kWarps; ++w) result = Better(result, shared.best[w]);
  __syncthreads();
  return result;
}

// Sums kCount values over the block, in a fixed order; the results are in shared.totals.
template <int kCount>
__device__ void BlockSums(float (&values)[kCount], Shared& shared) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    values[i] = WarpSum(values[i]);
    if (threadIdx.x % kWarpSize == 0) shared.sums[threadIdx.x / kWarpSize][i] = values[i];
  }
  __syncthreads();
  if (threadIdx.x < kCount) {
    float total = 0;
    for (int w = 0; w < kWarps; ++w) total += shared.sums[w][threadIdx.x];
    shared.totals[threadIdx.x] = total;
  }
  __syncthreads();
}

// A row as the filters see it: values times scale (the inverse temperature).
struct Row {
  const float* values;
  float scale;
  int size;
};

// Calls f(value, index) for this thread's share of the row: four 16-byte loads in flight, because
// one block alone must cover the latency of L2.
template <typename F>
__device__ __forceinline__ void ForEach(const Row& row, F f) {
  const bool aligned = reinterpret_cast<uintptr_t>(row.values) % 16 == 0;
  const int quads = aligned ? row.size / 4 : 0;
  const auto* vectors = reinterpret_cast<const float4*>(row.values);
  const auto visit = [&](const float4& v, int quad) {
    f(v.x * row.scale, quad * 4);
    f(v.y * row.scale, quad * 4 + 1);
    f(v.z * row.scale, quad * 4 + 2);
    f(v.w * row.scale, quad * 4 + 3);
  };
  int quad = threadIdx.x;
  for (; quad + 3 * kThreads < quads; quad += 4 * kThreads) {
    float4 v[4];
#pragma unroll
    for (int u = 0; u < 4; ++u) v[u] = vectors[quad + u * kThreads];
#pragma unroll
    for (int u = 0; u < 4; ++u) visit(v[u], quad + u * kThreads);
  }
  for (; quad < quads; quad += kThreads) visit(vectors[quad], quad);
  for (int i = quads * 4 + threadIdx.x; i < row.size; i += kThreads) {
    f(row.values[i] * row.scale, i);
  }
}

// The largest key t with weight(keys >= t) >= wanted, where a key counts 1 (kMass false) or its
// probability mass relative to the maximum. Keys below `floor` count nothing.
template <bool kMass>
__device__ uint32_t FindThreshold(const Row& row, float maximum, uint32_t floor, float wanted,
                                  Shared& shared) {
  uint64_t low = floor;                        // satisfies the condition, or nothing does
  uint64_t high = uint64_t{Key(maximum)} + 1;  // does not
  while (high - low > 1) {
    const uint64_t width = high - low;
    uint32_t pivots[kPivots];
#pragma unroll
    for (int i = 0; i < kPivots; ++i) {
      pivots[i] = static_cast<uint32_t>(low + width * (i + 1) / (kPivots + 1));
    }
    float sums[kPivots] = {};
    ForEach(row, [&](float value, int) {
      const uint32_t key = Key(value);
      if (key < pivots[0] || key < floor) return;
      const float weight = kMass ? __expf(value - maximum) : 1.0f;
#pragma unroll
      for (int j = 0; j < kPivots; ++j) sums[j] += key >= pivots[j] ? weight : 0.0f;
    });
    BlockSums(sums, shared);
    uint64_t next_low = low;
    uint64_t next_high = high;
#pragma unroll
    for (int i = 0; i < kPivots; ++i) {
      if (shared.totals[i] >= wanted) {
        next_low = max(next_low, uint64_t{pivots[i]});
      } else {
        next_high = min(next_high, uint64_t{pivots[i]});
      }
    }
    __syncthreads();
    // Fewer than eight keys left make equal pivots: still one of the bounds moves.
    if (next_low == low && next_high == high) break;
    low = next_low;
    high = next_high;
  }
  return static_cast<uint32_t>(low);
}

// What sampling sees of one logit: bias and penalties as OpenAI and HF define them.
__device__ __forceinline__ float Penalise(float logit, const SamplingSlot& slot, uint16_t count) {
  const int occurrences = count & (kInPrompt - 1);
  if (count != 0) {
    logit = logit > 0 ? logit / slot.repetition_penalty : logit * slot.repetition_penalty;
  }
  if (occurrences > 0) {
    logit -= slot.presence_penalty + slot.frequency_penalty * static_cast<float>(occurrences);
  }
  return logit;
}

// Writes what mask, bias and penalties make of the logits to scratch, in this order.
__device__ void Adjust(const SampleParams& p, const SamplingSlot& slot, int row, int slot_id) {
  const float* logits = p.logits + static_cast<int64_t>(row) * p.vocab_size;
  float* scratch = p.scratch + static_cast<int64_t>(row) * p.vocab_size;
  const int mask_index = p.row_masks == nullptr ? -1 : p.row_masks[row];
  const uint32_t* mask =
      mask_index < 0 ? nullptr
                     : p.masks + static_cast<int64_t>(mask_index) * ((p.vocab_size + 31) / 32);
#pragma unroll 4
  for (int i = threadIdx.x; i < p.vocab_size; i += kThreads) {
    const bool allowed = mask == nullptr || (mask[i / 32] >> (i % 32) & 1) != 0;
    scratch[i] = allowed ? logits[i] : -INFINITY;
  }
  __syncthreads();
  for (int b = slot.bias_begin + static_cast<int>(threadIdx.x); b < slot.bias_end; b += kThreads) {
    atomicAdd(&scratch[p.bias_ids[b]], p.bias_values[b]);  // an id may come twice
  }
  __syncthreads();
  if (p.counts == nullptr || slot.use_counts == 0) return;
  const uint16_t* counts = p.counts + static_cast<int64_t>(slot_id) * p.vocab_size;
#pragma unroll 4
  for (int i = threadIdx.x; i < p.vocab_size; i += kThreads) {
    if (const uint16_t count = counts[i]; count != 0) {
      scratch[i] = Penalise(scratch[i], slot, count);
    }
  }
  __syncthreads();
}

// The best of the row. Sets shared.flag when it holds NaN or +inf.
__device__ Best FindBest(const Row& row, Shared& shared) {
  if (threadIdx.x == 0) shared.flag = 0;
  __syncthreads();
  Best best = {-INFINITY, 0x7fffffff};
  bool bad = false;
  ForEach(row, [&](float value, int i) {
    bad = bad || !(value <= FLT_MAX);
    best = Better(best, {value, i});
  });
  if (bad) shared.flag = 1;
  return BlockBest(best, shared);
}

// The smallest key that min-p, top-k and top-p leave.
__device__ uint32_t Threshold(const SamplingSlot& slot, const Row& row, float maximum,
                              Shared& shared) {
  uint32_t threshold = Key(-FLT_MAX);  // masked tokens never come back
  if (slot.min_p > 0) threshold = max(threshold, Key(maximum + __logf(slot.min_p)));
  if (slot.top_k > 0 && slot.top_k < row.size) {
    threshold =
        FindThreshold<false>(row, maximum, threshold, static_cast<float>(slot.top_k), shared);
  }
  if (slot.top_p < 1.0f) {
    float mass[1] = {0};
    ForEach(row, [&](float value, int) {
      if (Key(value) >= threshold) mass[0] += __expf(value - maximum);
    });
    BlockSums(mass, shared);
    const float wanted = slot.top_p * shared.totals[0];
    __syncthreads();
    threshold = wanted <= 1.0f ? Key(maximum)  // the best token alone has mass 1
                               : FindThreshold<true>(row, maximum, threshold, wanted, shared);
  }
  return threshold;
}

__device__ int32_t Draw(const SamplingSlot& slot, const Row& row, uint32_t threshold,
                        int output_index, Shared& shared) {
  Best best = {-INFINITY, 0x7fffffff};
  PhiloxNumbers numbers;
  int drawn = -1;  // the quad of tokens that numbers are for
  ForEach(row, [&](float value, int i) {
    if (Key(value) < threshold) return;
    if (drawn != i / 4) {
      drawn = i / 4;
      numbers = Philox(drawn, output_index, slot.choice, 0, slot.seed);
    }
    const uint32_t bits = i % 4 == 0   ? numbers.x[0]
                          : i % 4 == 1 ? numbers.x[1]
                          : i % 4 == 2 ? numbers.x[2]
                                       : numbers.x[3];
    // 1 - u keeps full precision where it matters: small exponentials win.
    const float v = (static_cast<float>(bits) + 0.5f) * 0x1p-32f;
    const float exponential = -log1pf(-fminf(v, 0.99999994f));
    best = Better(best, {value - logf(exponential), i});
  });
  return BlockBest(best, shared).index;
}

// Log-softmax of the row over the keys from threshold on.
__device__ void WriteLogprobs(const SampleParams& p, int num_logprobs, int row, const Row& values,
                              uint32_t threshold, int32_t token, Shared& shared) {
  Best best = {-INFINITY, 0x7fffffff};
  ForEach(values, [&](float value, int i) { best = Better(best, {value, i}); });
  best = BlockBest(best, shared);
  const float maximum = best.value;
  const float mine = values.values[token] * values.scale;
  float sums[2] = {0, 0};  // of exp, and how many are better than the sampled token
  ForEach(values, [&](float value, int) {
    if (Key(value) < threshold) return;
    sums[0] += __expf(value - maximum);
    sums[1] += value > mine ? 1.0f : 0.0f;
  });
  BlockSums(sums, shared);
  const float log_sum = maximum + logf(shared.totals[0]);
  const int rank = 1 + static_cast<int>(shared.totals[1]);
  int32_t* ids = p.logprob_ids + static_cast<int64_t>(row) * (kMaxTopLogprobs + 1);
  float* logprobs = p.logprobs + static_cast<int64_t>(row) * (kMaxTopLogprobs + 1);
  if (threadIdx.x == 0) {
    ids[0] = token;
    logprobs[0] = fmaxf(mine - log_sum, -9999.0f);
    p.sampled_ranks[row] = rank;
  }
  for (int n = 1; n <= min(num_logprobs, kMaxTopLogprobs); ++n) {
    if (threadIdx.x == 0) {
      ids[n] = best.index;
      logprobs[n] = Key(best.value) < threshold ? -9999.0f : fmaxf(best.value - log_sum, -9999.0f);
    }
    const Best previous = best;
    best = {-INFINITY, 0x7fffffff};
    ForEach(values, [&](float value, int i) {
      const bool taken = value > previous.value || (value == previous.value && i <= previous.index);
      if (!taken) best = Better(best, {value, i});
    });
    best = BlockBest(best, shared);
  }
}

__global__ void __launch_bounds__(kThreads) SampleKernel(const __grid_constant__ SampleParams p) {
  __shared__ Shared shared;
  const int row = blockIdx.x;
  const int slot_id = p.row_slots[row];
  if (slot_id <= 0) return;
  const SamplingSlot slot = p.slots[slot_id];
  const int64_t offset = static_cast<int64_t>(row) * p.vocab_size;
  // Most rows need no adjusting: they are read where they lie.
  const bool adjusted = (p.counts != nullptr && slot.use_counts != 0) ||
                        slot.bias_end > slot.bias_begin ||
                        (p.row_masks != nullptr && p.row_masks[row] >= 0);
  if (adjusted) Adjust(p, slot, row, slot_id);
  const Row values = {.values = (adjusted ? p.scratch : p.logits) + offset,
                      .scale = slot.temperature > 0 ? 1.0f / slot.temperature : 1.0f,
                      .size = p.vocab_size};
  const Best best = FindBest(values, shared);
  const bool bad = shared.flag != 0 || best.index == 0x7fffffff || best.value == -INFINITY;
  int32_t token = bad ? 0 : best.index;
  uint32_t threshold = Key(-FLT_MAX);
  if (!bad && slot.temperature > 0 && slot.top_k != 1 && slot.top_p > 0) {
    threshold = Threshold(slot, values, best.value, shared);
    token = Draw(slot, values, threshold, p.output_indices[row], shared);
  }
  if (!bad && slot.num_logprobs >= 0) {
    const Row raw = {.values = p.logits + offset, .scale = 1.0f, .size = p.vocab_size};
    const bool processed = slot.processed_logprobs != 0;
    WriteLogprobs(p, slot.num_logprobs, row, processed ? values : raw,
                  processed ? threshold : Key(-FLT_MAX), token, shared);
  }
  if (threadIdx.x != 0) return;
  p.tokens[row] = token;
  p.nonfinite[row] = bad ? 1 : 0;
  if (p.last_tokens != nullptr) p.last_tokens[slot_id] = token;
  if (p.counts != nullptr && slot.use_counts != 0) {
    uint16_t& count = p.counts[static_cast<int64_t>(slot_id) * p.vocab_size + token];
    if ((count & (kInPrompt - 1)) < kInPrompt - 1) ++count;
  }
}

}  // namespace

cudaError_t LaunchSample(const SampleParams& params, cudaStream_t stream) {
  if (params.num_rows == 0) return cudaSuccess;
  if (params.vocab_size <= 0) return cudaErrorInvalidValue;
  SampleKernel<<<params.num_rows, kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace penstock::kernels
