// Sampling, one block a row. Most rows with top-k or top-p have few tokens that matter: those near
// the best are gathered in shared memory and sorted, and limits and draw look at them alone. Else a
// limit is found by narrowing a threshold over order-preserving integer keys, seven pivots a pass,
// eleven passes for all 32 bits. Both are exact, and the same on every run because every sum has a
// fixed order. Bound by L2 reads of a row per pass; greedy rows need one pass.

#include <cfloat>

#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/philox.cuh"
#include "kernels/cuda/sample.h"

namespace penstock::kernels {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kPivots = 7;
constexpr int kMaxCandidates = 2048;
// How far below the best, in units of the scaled logits, the gathered tokens may begin.
constexpr int kCuts = 4;
__device__ constexpr float kCut[kCuts] = {1.5f, 4.0f, 8.0f, 14.0f};
constexpr int kMaxSums = 2 * kCuts + 1;

// Order-preserving: a < b exactly when Key(a) < Key(b).
__device__ __forceinline__ uint32_t Key(float value) {
  const uint32_t bits = __float_as_uint(value);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float ValueOf(uint32_t key) {
  return __uint_as_float(key & 0x80000000u ? key ^ 0x80000000u : ~key);
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
  float sums[kWarps][kMaxSums];
  float totals[kMaxSums];
  int flag;
  // Gathered tokens, the best first: the key in the upper half, ~index in the lower.
  uint64_t candidates[kMaxCandidates];
  int num_candidates;
  uint32_t threshold;
};
static_assert(kPivots <= kMaxSums);

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

// Descending; count is a power of two.
__device__ void SortCandidates(int count, Shared& shared) {
  for (int size = 2; size <= count; size *= 2) {
    for (int stride = size / 2; stride > 0; stride /= 2) {
      for (int i = threadIdx.x; i < count / 2; i += kThreads) {
        const int low = i / stride * stride * 2 + i % stride;
        const uint64_t a = shared.candidates[low];
        const uint64_t b = shared.candidates[low + stride];
        if ((a < b) == ((low & size) == 0)) {
          shared.candidates[low] = b;
          shared.candidates[low + stride] = a;
        }
      }
      __syncthreads();
    }
  }
}

// Among the first `count` sorted candidates, the key at which their running mass reaches share of
// total (of their own mass when total < 0). Run by one warp.
__device__ uint32_t MassThreshold(int count, float share, float total, float maximum,
                                  const Shared& shared) {
  const int lane = threadIdx.x % kWarpSize;
  const auto mass_of = [&](int i) {
    return i < count ? __expf(ValueOf(static_cast<uint32_t>(shared.candidates[i] >> 32)) - maximum)
                     : 0.0f;
  };
  if (total < 0) {
    total = 0;
    for (int i = 0; i < count; i += kWarpSize) total += WarpSum(mass_of(i + lane));
  }
  const float wanted = share * total;
  float before = 0;
  for (int i = 0; i < count; i += kWarpSize) {
    float running = mass_of(i + lane);
#pragma unroll
    for (int offset = 1; offset < kWarpSize; offset *= 2) {
      const float other = __shfl_up_sync(0xffffffffu, running, offset);
      if (lane >= offset) running += other;
    }
    const unsigned reached = __ballot_sync(0xffffffffu, before + running >= wanted);
    if (reached != 0) {
      const int at = min(i + __ffs(reached) - 1, count - 1);
      return static_cast<uint32_t>(shared.candidates[at] >> 32);
    }
    before += __shfl_sync(0xffffffffu, running, kWarpSize - 1);
  }
  return static_cast<uint32_t>(shared.candidates[count - 1] >> 32);
}

// The same as Threshold, when the tokens that matter are few: they are left sorted in
// shared.candidates. False when they are too many.
__device__ bool GatheredThreshold(const SamplingSlot& slot, const Row& row, float maximum,
                                  uint32_t* threshold, Shared& shared) {
  const bool use_k = slot.top_k > 0 && slot.top_k < row.size;
  const bool use_p = slot.top_p < 1.0f;
  uint32_t floor = Key(-FLT_MAX);
  if (slot.min_p > 0) floor = max(floor, Key(maximum + __logf(slot.min_p)));
  // Per cut how many tokens lie above it and their mass, and the mass of all.
  float sums[kMaxSums] = {};
  ForEach(row, [&](float value, int) {
    if (Key(value) < floor) return;
    const float mass = __expf(value - maximum);
    sums[2 * kCuts] += mass;
#pragma unroll
    for (int c = 0; c < kCuts; ++c) {
      const bool above = value >= maximum - kCut[c];
      sums[2 * c] += above ? 1.0f : 0.0f;
      sums[2 * c + 1] += above ? mass : 0.0f;
    }
  });
  BlockSums(sums, shared);
  const float total = shared.totals[2 * kCuts];
  int cut = kCuts;
  for (int c = kCuts - 1; c >= 0; --c) {
    const bool enough = use_k ? shared.totals[2 * c] >= static_cast<float>(slot.top_k)
                              : shared.totals[2 * c + 1] >= slot.top_p * total;
    if (enough) cut = c;
  }
  const float count = cut < kCuts ? shared.totals[2 * cut] : 0.0f;
  __syncthreads();
  if (cut == kCuts || count > static_cast<float>(kMaxCandidates)) return false;
  const int num = static_cast<int>(count);
  if (threadIdx.x == 0) shared.num_candidates = 0;
  int padded = 2;
  while (padded < num) padded *= 2;
  for (int i = num + threadIdx.x; i < padded; i += kThreads) shared.candidates[i] = 0;
  __syncthreads();
  const float lowest = maximum - kCut[cut];
  ForEach(row, [&](float value, int i) {
    const uint32_t key = Key(value);
    if (key < floor || value < lowest) return;
    const int at = atomicAdd(&shared.num_candidates, 1);
    shared.candidates[at] = uint64_t{key} << 32 | static_cast<uint32_t>(~i);
  });
  __syncthreads();
  SortCandidates(padded, shared);
  if (threadIdx.x < kWarpSize) {
    int kept = num;
    uint32_t limit = floor;
    if (use_k) {
      limit = static_cast<uint32_t>(shared.candidates[slot.top_k - 1] >> 32);
      kept = slot.top_k;
      while (kept < num && static_cast<uint32_t>(shared.candidates[kept] >> 32) == limit) ++kept;
    }
    if (use_p) limit = MassThreshold(kept, slot.top_p, use_k ? -1.0f : total, maximum, shared);
    if (threadIdx.x == 0) shared.threshold = limit;
  }
  __syncthreads();
  *threshold = shared.threshold;
  return true;
}

// Calls f for the gathered tokens, as ForEach does for all.
template <typename F>
__device__ __forceinline__ void ForEachCandidate(const Shared& shared, F f) {
  for (int i = threadIdx.x; i < shared.num_candidates; i += kThreads) {
    const uint64_t candidate = shared.candidates[i];
    f(ValueOf(static_cast<uint32_t>(candidate >> 32)),
      static_cast<int>(~static_cast<uint32_t>(candidate)));
  }
}

// The Gumbel maximum over the tokens from threshold on; each(f) calls f for the tokens.
template <typename Each>
__device__ int32_t Draw(const SamplingSlot& slot, Each each, uint32_t threshold, int output_index,
                        Shared& shared) {
  Best best = {-INFINITY, 0x7fffffff};
  PhiloxNumbers numbers;
  int drawn = -1;  // the quad of tokens that numbers are for
  each([&](float value, int i) {
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
    // The exponential is at least v: most tokens cannot win, which takes no logarithm to see. The
    // factor covers the fast exp's error.
    if (v > 1.001f * __expf(value - best.value)) return;
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
  AllowNext();
  WaitForPrevious();
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
    const bool limited = slot.top_p < 1.0f || (slot.top_k > 0 && slot.top_k < p.vocab_size);
    if (limited && GatheredThreshold(slot, values, best.value, &threshold, shared)) {
      token = Draw(
          slot, [&](auto f) { ForEachCandidate(shared, f); }, threshold, p.output_indices[row],
          shared);
    } else {
      threshold = Threshold(slot, values, best.value, shared);
      token = Draw(
          slot, [&](auto f) { ForEach(values, f); }, threshold, p.output_indices[row], shared);
    }
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
  return LaunchDependent(SampleKernel, dim3(params.num_rows), kThreads, 0, stream, params);
}

}  // namespace penstock::kernels
