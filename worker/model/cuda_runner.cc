#include "worker/model/cuda_runner.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <thread>
#include <utility>

#include "common/base/check.h"
#include "common/base/log.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cuda/rope_table.h"
#include "worker/model/memory_report.h"
#include "worker/model/rope.h"
#include "worker/model/transformer.h"

namespace penstock {
namespace {

// Decode steps are padded to the next of these, and each has a graph.
constexpr int32_t kBuckets[] = {1,   2,   4,   8,   16,  24,  32,  40,  48,  56,  64,  80,  96, 112,
                                128, 144, 160, 176, 192, 208, 224, 240, 256, 320, 384, 448, 512};
constexpr int32_t kMaxTokens = 65'535;  // of a step: a kernel's grid
constexpr int kMaxLoadThreads = 8;
constexpr int64_t kManyBlocks = int64_t{1} << 20;
// Splits of decode attention are planned for any length in a graph.
constexpr int32_t kAnyLength = 1 << 30;

int64_t BlocksFor(int64_t tokens, int32_t block_size) {
  return (tokens + block_size - 1) / block_size;
}

int32_t MaskWords(int32_t vocab_size) { return (vocab_size + 31) / 32; }

}  // namespace

absl::StatusOr<std::unique_ptr<CudaRunner>> CudaRunner::Create(const ModelSpec& spec,
                                                               const WeightSource& weights,
                                                               CudaRunnerOptions options) {
  ASSIGN_OR_RETURN(const CudaDevice device, OpenCudaDevice(options.device));
  std::unique_ptr<CudaRunner> runner(new CudaRunner(spec, std::move(options), device));
  CudaRunner& r = *runner;
  RETURN_IF_ERROR(r.CheckOptions());
  r.PlanGroups();
  RETURN_IF_ERROR(r.CheckFits());
  RETURN_IF_ERROR(CudaStatus(cudaStreamCreateWithFlags(&r.stream_, cudaStreamNonBlocking),
                             "creating a stream"));
  const auto threads = static_cast<int>(std::thread::hardware_concurrency());
  {
    kernels::ThreadPool pool(std::clamp(threads, 1, kMaxLoadThreads));
    ASSIGN_OR_RETURN(r.weights_,
                     LoadCudaWeights(r.spec_, weights, pool, r.stream_, r.options_.progress));
  }
  ASSIGN_OR_RETURN(r.ops_, CudaOps::Create(r.OpsOptions()));
  ASSIGN_OR_RETURN(r.slots_,
                   CudaSlots::Create(r.options_.max_num_seqs, spec.vocab_size, r.stream_));
  RETURN_IF_ERROR(r.TakeCache());
  RETURN_IF_ERROR(r.MakeRope());
  RETURN_IF_ERROR(r.TakeBuffers());
  RETURN_IF_ERROR(r.MeasureChunks());
  RETURN_IF_ERROR(r.CaptureGraphs());
  return runner;
}

CudaRunner::CudaRunner(const ModelSpec& spec, CudaRunnerOptions options, const CudaDevice& device)
    : spec_(spec), options_(std::move(options)), device_(device) {}

CudaRunner::~CudaRunner() {
  if (stream_ == nullptr) return;
  cudaStreamSynchronize(stream_);
  for (auto& [bucket, graph] : graphs_) cudaGraphExecDestroy(graph);
  for (Flight& flight : flights_) {
    if (flight.done != nullptr) cudaEventDestroy(flight.done);
  }
  cudaStreamDestroy(stream_);
}

absl::Status CudaRunner::CheckOptions() const {
  const CudaRunnerOptions& o = options_;
  if (o.block_size != 16 && o.block_size != 32 && o.block_size != 64) {
    return InvalidArgument("--block-size: %d; the CUDA runner has 16, 32 and 64", o.block_size);
  }
  if (o.max_num_seqs < 1 || o.max_num_batched_tokens < o.max_num_seqs + o.block_size ||
      o.max_num_batched_tokens > kMaxTokens) {
    return InvalidArgument(
        "--max-num-batched-tokens: %d must be at least --max-num-seqs (%d) and a block (%d), and "
        "at most %d",
        o.max_num_batched_tokens, o.max_num_seqs, o.block_size, kMaxTokens);
  }
  return CudaOps::CheckSpec(spec_);
}

void CudaRunner::PlanGroups() {
  std::map<int32_t, CudaKvGroup> by_window;
  for (int32_t layer = 0; layer < spec_.num_layers; ++layer) {
    const auto i = static_cast<size_t>(layer);
    const int32_t window = i < spec_.layer_window.size() ? spec_.layer_window[i] : 0;
    by_window[window].layers.push_back(layer);
    by_window[window].window = window;
  }
  for (auto& [window, group] : by_window) {
    group.block_elements = static_cast<int64_t>(group.layers.size()) * 2 * spec_.num_kv_heads *
                           options_.block_size * spec_.head_dim;
    groups_.push_back(std::move(group));
  }
}

CudaOps::Options CudaRunner::OpsOptions() const {
  return {.spec = spec_,
          .groups = groups_,
          .stream = stream_,
          .block_size = options_.block_size,
          .max_tokens = options_.max_num_batched_tokens,
          .max_rows = options_.max_num_seqs,
          .num_multiprocessors = device_.num_multiprocessors};
}

// Before anything is loaded: weights, activations and the smallest useful cache.
absl::Status CudaRunner::CheckFits() const {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  RETURN_IF_ERROR(CudaStatus(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for free memory"));
  const int64_t weights = CudaWeightBytes(spec_);
  const int64_t runtime = CudaOps::MemoryBytes(OpsOptions()) +
                          CudaSlots::MemoryBytes(options_.max_num_seqs, spec_.vocab_size);
  const int64_t token = KvBytesPerToken(spec_, 2);
  const int64_t least_kv =
      options_.kv_cache_bytes > 0
          ? options_.kv_cache_bytes
          : token * (options_.max_model_len > 0 ? options_.max_model_len : 2 * options_.block_size);
  const auto others = static_cast<int64_t>(total_bytes - free_bytes);
  const auto usable =
      static_cast<int64_t>(static_cast<double>(total_bytes) * options_.gpu_memory_utilization) -
      others;
  const int64_t needed = weights + runtime + least_kv;
  if (needed <= usable) return absl::OkStatus();
  const double per_parameter =
      static_cast<double>(weights + runtime + least_kv) / static_cast<double>(usable);
  return ResourceExhausted(
      "the model does not fit %s: weights %s (bf16) + activations %s + KV cache %s = %s, but "
      "--gpu-memory-utilization %.2f of %s less %s in use elsewhere leaves %s. What helps: a lower "
      "--max-model-len (%s of KV per token), --max-num-batched-tokens or --max-num-seqs, a smaller "
      "model, or %d cards with tensor parallelism (not there yet)",
      device_.Description(), BytesText(weights), BytesText(runtime), BytesText(least_kv),
      BytesText(needed), options_.gpu_memory_utilization,
      BytesText(static_cast<int64_t>(total_bytes)), BytesText(others), BytesText(usable),
      BytesText(token), usable > 0 ? static_cast<int>(per_parameter) + 1 : 2);
}

absl::Status CudaRunner::TakeCache() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  RETURN_IF_ERROR(CudaStatus(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for free memory"));
  const auto model_len = static_cast<int32_t>(std::min<int64_t>(
      RopeMaxPosition(spec_.rope, spec_.max_position), std::numeric_limits<int32_t>::max() / 2));
  int32_t length = options_.max_model_len > 0 ? options_.max_model_len : model_len;
  // Still to come: the rotary table, the steps' buffers, graphs and the libraries' kernels.
  const int64_t rope = int64_t{length} * spec_.rope.rotary_dim * 4;
  const auto left =
      static_cast<int64_t>(static_cast<double>(total_bytes) * options_.gpu_memory_utilization) -
      static_cast<int64_t>(total_bytes - free_bytes) - rope;
  int64_t bytes_per_block = 0;
  for (const CudaKvGroup& group : groups_) bytes_per_block += group.block_elements * 2;
  // All that is left, for what no running request needs keeps prefixes; but no more blocks than the
  // host can account for, which a very small model would have.
  const int64_t most =
      std::max(BlocksFor(length, options_.block_size) * options_.max_num_seqs + 1, kManyBlocks);
  int64_t blocks = options_.kv_cache_bytes > 0 ? options_.kv_cache_bytes / bytes_per_block
                                               : std::min(left / bytes_per_block, most);
  blocks = std::min<int64_t>(blocks, std::numeric_limits<int32_t>::max() / 2);
  if (blocks < 2) {
    return ResourceExhausted(
        "%s left for the KV cache hold no block of %d tokens (%s): raise --gpu-memory-utilization "
        "or --kv-cache-memory-bytes",
        BytesText(std::max<int64_t>(left, 0)), options_.block_size, BytesText(bytes_per_block));
  }
  const int64_t fits = (blocks - 1) * options_.block_size;
  if (length > fits) {
    if (options_.max_model_len > 0) {
      return ResourceExhausted(
          "--max-model-len %d needs %s of KV cache, there are %s (%d tokens): lower it, or raise "
          "--gpu-memory-utilization or --kv-cache-memory-bytes",
          length, BytesText(BlocksFor(length, options_.block_size) * bytes_per_block),
          BytesText(blocks * bytes_per_block), fits);
    }
    length = static_cast<int32_t>(fits);
  }
  info_.device = device_.Description();
  info_.vocab_size = spec_.vocab_size;
  info_.max_model_len = length;
  info_.block_size = options_.block_size;
  info_.max_num_seqs = options_.max_num_seqs;
  info_.max_num_batched_tokens = options_.max_num_batched_tokens;
  info_.weight_bytes = weights_.bytes();
  for (CudaKvGroup& group : groups_) {
    const int64_t bytes = group.block_elements * 2;
    info_.kv_groups.push_back({.num_layers = static_cast<int32_t>(group.layers.size()),
                               .window = group.window,
                               .num_blocks = static_cast<int32_t>(blocks),
                               .bytes_per_block = bytes});
    info_.kv_bytes += blocks * bytes;
    ASSIGN_OR_RETURN(auto cache,
                     AllocateDevice<__nv_bfloat16>(
                         static_cast<size_t>(blocks * group.block_elements), "the KV cache"));
    // Masked positions are read too, and must not hold NaN.
    RETURN_IF_ERROR(CudaStatus(cudaMemsetAsync(cache.data(), 0, cache.bytes(), stream_),
                               "clearing the KV cache"));
    group.cache = cache.data();
    caches_.push_back(std::move(cache));
  }
  return absl::OkStatus();
}

absl::Status CudaRunner::MakeRope() {
  const RopeTable rope = ComputeRope(spec_.rope, spec_.max_position, info_.max_model_len);
  const size_t half = rope.inv_freq.size();
  ASSIGN_OR_RETURN(const auto inv_freq, AllocateDevice<float>(half, "rotary frequencies"));
  ASSIGN_OR_RETURN(cos_sin_,
                   AllocateDevice<float>(static_cast<size_t>(info_.max_model_len) * 2 * half,
                                         "the rotary table (--max-model-len)"));
  RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(inv_freq.data(), rope.inv_freq.data(), half * 4,
                                             cudaMemcpyHostToDevice, stream_),
                             "sending rotary frequencies"));
  RETURN_IF_ERROR(CudaStatus(kernels::LaunchRopeTable({.inv_freq = inv_freq.data(),
                                                       .cos_sin = cos_sin_.data(),
                                                       .factor = rope.attention_factor,
                                                       .num_positions = info_.max_model_len,
                                                       .half = static_cast<int32_t>(half)},
                                                      stream_),
                             "the rotary table"));
  return CudaStatus(cudaStreamSynchronize(stream_), "the rotary table");
}

CudaRunner::ResultLayout CudaRunner::ResultsOf(int32_t rows) const {
  const auto n = static_cast<size_t>(rows);
  ResultLayout layout;
  layout.nonfinite = n * 4;
  layout.short_bytes = layout.nonfinite + n;
  layout.ranks = (layout.short_bytes + 15) / 16 * 16;
  layout.logprob_ids = layout.ranks + n * 4;
  layout.logprobs = layout.logprob_ids + n * (kernels::kMaxTopLogprobs + 1) * 4;
  layout.bytes = layout.logprobs + n * (kernels::kMaxTopLogprobs + 1) * 4;
  return layout;
}

absl::Status CudaRunner::TakeBuffers() {
  const size_t step_bytes = MaxStepBytes(options_.max_num_batched_tokens, options_.max_num_seqs,
                                         static_cast<int32_t>(groups_.size()),
                                         BlocksFor(info_.max_model_len, options_.block_size) + 1);
  const size_t result_bytes = ResultsOf(options_.max_num_seqs).bytes;
  ASSIGN_OR_RETURN(step_buffer_, AllocateDevice<std::byte>(step_bytes, "a step's input"));
  ASSIGN_OR_RETURN(result_buffer_, AllocateDevice<std::byte>(result_bytes, "a step's result"));
  for (Flight& flight : flights_) {
    ASSIGN_OR_RETURN(flight.input, AllocatePinned<std::byte>(step_bytes, "a step's input"));
    ASSIGN_OR_RETURN(flight.result, AllocatePinned<std::byte>(result_bytes, "a step's result"));
    RETURN_IF_ERROR(CudaStatus(cudaEventCreateWithFlags(&flight.done, cudaEventDisableTiming),
                               "creating an event"));
  }
  return absl::OkStatus();
}

absl::Status CudaRunner::Forward(const CudaStep& step, int32_t num_splits) {
  ops_->BeginStep({.step = &step,
                   .buffer = step_buffer_.data(),
                   .cos_sin = cos_sin_.data(),
                   .last_tokens = slots_->last_tokens(),
                   .num_splits = num_splits});
  RunTransformer(spec_, weights_, *ops_);
  ops_->Head(weights_.head());
  return ops_->TakeStatus();
}

// A graph holds the kernels of a step of so many decode rows; what they read lies in the step
// buffer.
absl::Status CudaRunner::CaptureGraphs() {
  if (!options_.use_graphs) return absl::OkStatus();
  for (const int32_t bucket : kBuckets) {
    if (bucket > options_.max_num_seqs && graphs_.contains(options_.max_num_seqs)) break;
    const int32_t rows = std::min(bucket, options_.max_num_seqs);
    CudaStep step;
    step.shape = {.num_tokens = rows,
                  .num_decode = rows,
                  .num_last = rows,
                  .num_groups = static_cast<int32_t>(groups_.size())};
    const int32_t splits = ops_->PlanSplits(rows, kAnyLength);
    RETURN_IF_ERROR(ops_->TuneLinears(weights_, rows));
    // Once for real: kernels are loaded at their first launch, which a capture may not allow.
    std::byte* const host = flights_[0].input.data();
    PackStep(StepInput(), step.shape, options_.block_size, host, &step);
    RETURN_IF_ERROR(CudaStatus(
        cudaMemcpyAsync(step_buffer_.data(), host, step.bytes, cudaMemcpyHostToDevice, stream_),
        "sending a step"));
    RETURN_IF_ERROR(Forward(step, splits));
    RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream_), "a decode step of padding"));
    RETURN_IF_ERROR(CudaStatus(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
                               "capturing a decode step"));
    const absl::Status queued = Forward(step, splits);
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream_, &graph);
    RETURN_IF_ERROR(queued);
    RETURN_IF_ERROR(CudaStatus(ended, "capturing a decode step"));
    cudaGraphExec_t executable = nullptr;
    const cudaError_t made = cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    RETURN_IF_ERROR(CudaStatus(made, "making a decode graph"));
    graphs_[rows] = executable;
  }
  return absl::OkStatus();
}

// Prefill chunks of growing size, each once after a warm-up, in the padding block.
absl::Status CudaRunner::MeasureChunks() {
  info_.chunk_times = options_.chunk_times;
  StepInputBuilder builder;
  StepInput input;
  const int32_t most = std::min(options_.max_num_batched_tokens, info_.max_model_len);
  const std::vector<TokenId> ids(static_cast<size_t>(most), 0);
  const std::vector<BlockId> blocks(static_cast<size_t>(BlocksFor(most, options_.block_size)),
                                    kPaddingBlock);
  const auto run = [&](int32_t tokens) -> absl::StatusOr<int64_t> {
    const std::vector<std::span<const BlockId>> tables(groups_.size(), blocks);
    builder.Begin(0, static_cast<int32_t>(groups_.size()));
    builder.AddRow({.num_tokens = tokens, .logits = LogitsKind::kLast},
                   std::span(ids).first(static_cast<size_t>(tokens)), tables);
    builder.Finish(&input);
    const auto start = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(LaunchForward(input));
    RETURN_IF_ERROR(LaunchSample({}));
    RETURN_IF_ERROR(Collect().status());
    const auto took = std::chrono::steady_clock::now() - start;
    return std::chrono::duration_cast<std::chrono::microseconds>(took).count();
  };
  if (!info_.chunk_times.empty()) return run(std::min(most, options_.block_size)).status();
  for (int32_t tokens = options_.block_size; tokens <= most; tokens *= 2) {
    RETURN_IF_ERROR(run(tokens).status());
    ASSIGN_OR_RETURN(int64_t micros, run(tokens));
    micros = std::max<int64_t>(micros, 1);
    if (!info_.chunk_times.empty()) micros = std::max(micros, info_.chunk_times.back().micros);
    info_.chunk_times.push_back({tokens, micros});
  }
  return absl::OkStatus();
}

void CudaRunner::InitSlot(const SlotInit& init) { slots_->Init(init); }

// The padded size of a decode step that has a graph, or 0.
int32_t CudaRunner::BucketOf(const CudaStepShape& shape) const {
  if (shape.num_prefill > 0 || shape.num_last > shape.num_decode) return 0;
  const auto it = graphs_.lower_bound(shape.num_decode);
  return it == graphs_.end() ? 0 : it->first;
}

absl::Status CudaRunner::LaunchForward(const StepInput& input) {
  for (const StepRow& row : input.rows()) {
    if (row.logits == LogitsKind::kAll || row.logits == LogitsKind::kPooled) {
      return Unimplemented("the CUDA runner has no logits of all positions and no pooling yet");
    }
    if (row.adapter_id >= 0) return Unimplemented("the CUDA runner has no adapters yet");
  }
  CHECK(input.num_tokens() <= options_.max_num_batched_tokens);
  CHECK(static_cast<int32_t>(input.rows().size()) <= options_.max_num_seqs);
  Flight& flight = flights_[launched_ % kMaxStepsInFlight];
  CHECK(!flight.launched);
  CudaStepShape shape = ShapeOf(input);
  const int32_t bucket = BucketOf(shape);
  if (bucket > 0) shape.num_tokens = shape.num_decode = shape.num_last = bucket;
  flight.step_id = input.step_id();
  PackStep(input, shape, options_.block_size, flight.input.data(), &flight.step);
  CHECK(flight.step.bytes <= flight.input.size());
  RETURN_IF_ERROR(
      WithShape(CudaStatus(cudaMemcpyAsync(step_buffer_.data(), flight.input.data(),
                                           flight.step.bytes, cudaMemcpyHostToDevice, stream_),
                           "sending a step"),
                flight));
  if (bucket > 0) {
    return WithShape(
        CudaStatus(cudaGraphLaunch(graphs_.at(bucket), stream_), "launching a decode graph"),
        flight);
  }
  const int32_t splits =
      ops_->PlanSplits(std::max(shape.num_decode, 1), std::max(flight.step.max_seq_len, 1));
  return WithShape(Forward(flight.step, splits), flight);
}

absl::Status CudaRunner::CopyMasks(Flight& flight, std::span<const RowMask> masks,
                                   kernels::SampleParams* params) {
  const auto words = static_cast<size_t>(MaskWords(spec_.vocab_size));
  const auto rows = static_cast<size_t>(flight.step.shape.num_last);
  const auto wanted = [&](const CudaSampledRow& row) -> const RowMask* {
    for (const RowMask& mask : masks) {
      if (mask.slot == row.slot) return &mask;
    }
    return nullptr;
  };
  const bool any = std::any_of(flight.step.sampled.begin(), flight.step.sampled.end(),
                               [&](const CudaSampledRow& row) {
                                 return slots_->NeedsMask(row.slot, row.output_index) ||
                                        (!masks.empty() && wanted(row) != nullptr);
                               });
  if (!any) return absl::OkStatus();
  const size_t capacity = static_cast<size_t>(options_.max_num_seqs) * (words + 1);
  if (mask_buffer_.size() == 0) {
    ASSIGN_OR_RETURN(mask_buffer_, AllocateDevice<uint32_t>(capacity, "token masks"));
  }
  if (flight.masks.size() == 0) {
    ASSIGN_OR_RETURN(flight.masks, AllocatePinned<uint32_t>(capacity, "token masks"));
  }
  // Indices first, then the masks that are needed.
  auto* indices = reinterpret_cast<int32_t*>(flight.masks.data());
  std::fill(indices, indices + rows, -1);
  size_t used = 0;
  for (const CudaSampledRow& row : flight.step.sampled) {
    const RowMask* mask = wanted(row);
    if (mask == nullptr && !slots_->NeedsMask(row.slot, row.output_index)) continue;
    const std::span<uint32_t> bits(flight.masks.data() + rows + used * words, words);
    std::fill(bits.begin(), bits.end(), ~0u);
    if (mask != nullptr) {
      std::copy_n(mask->allowed.begin(), std::min(words, mask->allowed.size()), bits.begin());
    }
    slots_->ApplyMask(row.slot, row.output_index, bits);
    indices[row.last] = static_cast<int32_t>(used++);
  }
  params->row_masks = reinterpret_cast<const int32_t*>(mask_buffer_.data());
  params->masks = mask_buffer_.data() + rows;
  return CudaStatus(
      cudaMemcpyAsync(mask_buffer_.data(), flight.masks.data(),
                      (rows + used * words) * sizeof(uint32_t), cudaMemcpyHostToDevice, stream_),
      "sending token masks");
}

absl::Status CudaRunner::LaunchSample(std::span<const RowMask> masks) {
  Flight& flight = flights_[launched_++ % kMaxStepsInFlight];
  flight.launched = true;
  flight.has_logprobs = false;
  const CudaStep& step = flight.step;
  if (!step.sampled.empty()) {
    const ResultLayout result = ResultsOf(step.shape.num_last);
    std::byte* const out = result_buffer_.data();
    kernels::SampleParams params = {
        .logits = ops_->logits(),
        .row_slots = reinterpret_cast<const int32_t*>(step_buffer_.data() + step.layout.row_slots),
        .output_indices =
            reinterpret_cast<const int32_t*>(step_buffer_.data() + step.layout.output_indices),
        .scratch = ops_->logits_scratch(),
        .tokens = reinterpret_cast<int32_t*>(out + result.tokens),
        .nonfinite = reinterpret_cast<uint8_t*>(out + result.nonfinite),
        .logprob_ids = reinterpret_cast<int32_t*>(out + result.logprob_ids),
        .logprobs = reinterpret_cast<float*>(out + result.logprobs),
        .sampled_ranks = reinterpret_cast<int32_t*>(out + result.ranks),
        .num_rows = step.shape.num_last,
        .vocab_size = spec_.vocab_size};
    RETURN_IF_ERROR(slots_->Send());
    slots_->FillParams(&params);
    RETURN_IF_ERROR(CopyMasks(flight, masks, &params));
    RETURN_IF_ERROR(
        WithShape(CudaStatus(kernels::LaunchSample(params, stream_), "sampling"), flight));
    for (const CudaSampledRow& row : step.sampled) {
      flight.has_logprobs = flight.has_logprobs || slots_->params(row.slot).top_logprobs >= 0;
    }
    const size_t bytes = flight.has_logprobs ? result.bytes : result.short_bytes;
    RETURN_IF_ERROR(CudaStatus(
        cudaMemcpyAsync(flight.result.data(), out, bytes, cudaMemcpyDeviceToHost, stream_),
        "fetching tokens"));
    if (options_.logits_hook) {
      const size_t count =
          static_cast<size_t>(step.shape.num_last) * static_cast<size_t>(spec_.vocab_size);
      flight.logits.resize(count);
      RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(flight.logits.data(), ops_->logits(), count * 4,
                                                 cudaMemcpyDeviceToHost, stream_),
                                 "fetching logits"));
    }
  }
  return CudaStatus(cudaEventRecord(flight.done, stream_), "recording an event");
}

absl::StatusOr<const StepOutput*> CudaRunner::Collect() {
  CHECK(collected_ < launched_);
  Flight& flight = flights_[collected_++ % kMaxStepsInFlight];
  RETURN_IF_ERROR(WithShape(CudaStatus(cudaEventSynchronize(flight.done), "a step"), flight));
  flight.launched = false;
  WriteOutput(flight);
  return &output_;
}

void CudaRunner::WriteOutput(Flight& flight) {
  output_.step_id = flight.step_id;
  output_.rows.clear();
  output_.tokens.clear();
  output_.logprobs.clear();
  const ResultLayout layout = ResultsOf(flight.step.shape.num_last);
  const std::byte* const result = flight.result.data();
  const auto* tokens = reinterpret_cast<const int32_t*>(result + layout.tokens);
  const auto* nonfinite = reinterpret_cast<const uint8_t*>(result + layout.nonfinite);
  const auto* ranks = reinterpret_cast<const int32_t*>(result + layout.ranks);
  const auto* ids = reinterpret_cast<const int32_t*>(result + layout.logprob_ids);
  const auto* logprobs = reinterpret_cast<const float*>(result + layout.logprobs);
  for (const CudaSampledRow& row : flight.step.sampled) {
    const auto last = static_cast<size_t>(row.last);
    RowOutput out;
    out.slot = row.slot;
    out.token_begin = static_cast<int32_t>(output_.tokens.size());
    output_.tokens.push_back(tokens[last]);
    out.token_end = out.token_begin + 1;
    out.nonfinite_logits = nonfinite[last] != 0;
    out.logprob_begin = static_cast<int32_t>(output_.logprobs.size());
    const int32_t wanted = std::min(
        {slots_->params(row.slot).top_logprobs, kernels::kMaxTopLogprobs, spec_.vocab_size});
    if (wanted >= 0 && !out.nonfinite_logits) {
      out.sampled_rank = ranks[last];
      for (int32_t n = 0; n <= wanted; ++n) {
        const size_t at = last * (kernels::kMaxTopLogprobs + 1) + static_cast<size_t>(n);
        output_.logprobs.push_back({ids[at], logprobs[at]});
      }
    }
    out.logprob_end = static_cast<int32_t>(output_.logprobs.size());
    output_.rows.push_back(out);
    if (options_.logits_hook) {
      const auto vocab = static_cast<size_t>(spec_.vocab_size);
      options_.logits_hook(row.slot, row.output_index,
                           std::span<const float>(flight.logits).subspan(last * vocab, vocab));
    }
  }
}

// An error ends the process: the log shows what it was doing.
absl::Status CudaRunner::WithShape(const absl::Status& status, const Flight& flight) const {
  if (status.ok()) return status;
  const CudaStepShape& shape = flight.step.shape;
  return absl::Status(
      status.code(),
      absl::StrFormat("%s; step %d: %d tokens, %d decode rows (longest %d), %d prefill rows (most "
                      "new tokens %d), %d rows with logits",
                      std::string(status.message()), flight.step_id, shape.num_tokens,
                      shape.num_decode, flight.step.max_seq_len, shape.num_prefill,
                      flight.step.max_new_tokens, shape.num_last));
}

absl::Status CheckCudaDevice(int32_t device) { return OpenCudaDevice(device).status(); }

absl::StatusOr<std::unique_ptr<ModelRunner>> CreateCudaRunner(const ModelSpec& spec,
                                                              const WeightSource& weights,
                                                              CudaRunnerOptions options) {
  ASSIGN_OR_RETURN(std::unique_ptr<ModelRunner> runner,
                   CudaRunner::Create(spec, weights, std::move(options)));
  return runner;
}

}  // namespace penstock
