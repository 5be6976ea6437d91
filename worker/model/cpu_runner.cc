#include "worker/model/cpu_runner.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "common/base/check.h"
#include "common/base/status.h"
#include "worker/model/transformer.h"

namespace penstock {
namespace {

// Rows whose logits exist at the same time: the head runs in pieces.
constexpr int32_t kHeadRows = 32;
constexpr int32_t kMaxHeadDim = 512;

int32_t UsableCores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) return std::max(1, CPU_COUNT(&cores));
  return std::max(1, static_cast<int32_t>(std::thread::hardware_concurrency()));
}

int64_t MachineBytes() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

int32_t ThreadsOf(const CpuRunnerOptions& options) {
  return options.num_threads > 0 ? options.num_threads : UsableCores();
}

}  // namespace

void CpuRunner::Unmapper::operator()(float* p) const { munmap(p, bytes); }

absl::StatusOr<std::unique_ptr<CpuRunner>> CpuRunner::Create(const ModelSpec& spec,
                                                             const WeightSource& weights,
                                                             CpuRunnerOptions options) {
  const kernels::Isa isa = options.isa.value_or(kernels::DetectIsa());
  if (!kernels::IsaSupported(isa))
    return InvalidArgument("this CPU lacks the instruction set asked for");
  std::unique_ptr<CpuRunner> runner(new CpuRunner(spec, std::move(options), isa));
  RETURN_IF_ERROR(runner->CheckOptions());
  ASSIGN_OR_RETURN(runner->weights_,
                   LoadCpuWeights(spec, weights, runner->pool_, runner->options_.progress));
  RETURN_IF_ERROR(runner->PlanCache());
  RETURN_IF_ERROR(runner->MapCache());
  const CpuRunnerOptions& o = runner->options_;
  runner->rope_ = ComputeRope(spec.rope, spec.max_position, runner->info_.max_model_len);
  runner->ops_ = std::make_unique<CpuOps>(
      CpuOps::Options{.spec = runner->spec_,
                      .kernels = runner->kernels_,
                      .pool = runner->pool_,
                      .groups = runner->groups_,
                      .max_tokens = o.max_num_batched_tokens,
                      .max_rows = std::min(o.max_num_seqs, o.max_num_batched_tokens)});
  runner->MeasureChunks();
  runner->compute_ = std::thread([r = runner.get()] { r->ComputeMain(); });
  return runner;
}

CpuRunner::CpuRunner(const ModelSpec& spec, CpuRunnerOptions options, kernels::Isa isa)
    : spec_(spec),
      options_(std::move(options)),
      kernels_(kernels::KernelsFor(isa)),
      pool_(ThreadsOf(options_)) {
  slots_.resize(static_cast<size_t>(options_.max_num_seqs) + 1);
  for (int i = 0; i < pool_.num_threads(); ++i) samplers_.emplace_back(kernels_, spec_.vocab_size);
  logits_.resize(static_cast<size_t>(std::min(kHeadRows, options_.max_num_seqs)) *
                 static_cast<size_t>(spec_.vocab_size));
}

CpuRunner::~CpuRunner() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (compute_.joinable()) compute_.join();
}

absl::Status CpuRunner::CheckOptions() const {
  const CpuRunnerOptions& o = options_;
  if (o.block_size != 16 && o.block_size != 32 && o.block_size != 64) {
    return InvalidArgument("block size %d: the CPU runner has 16, 32 and 64", o.block_size);
  }
  if (o.max_num_seqs < 1 || o.max_num_batched_tokens < o.block_size) {
    return InvalidArgument(
        "max-num-seqs %d must be at least 1 and max-num-batched-tokens %d at least a block (%d)",
        o.max_num_seqs, o.max_num_batched_tokens, o.block_size);
  }
  if (spec_.head_dim > kMaxHeadDim) {
    return Unimplemented("head_dim %d: the CPU runner has at most %d", spec_.head_dim, kMaxHeadDim);
  }
  return absl::OkStatus();
}

absl::Status CpuRunner::PlanCache() {
  std::map<int32_t, CpuKvGroup> by_window;
  for (int32_t layer = 0; layer < spec_.num_layers; ++layer) {
    const auto i = static_cast<size_t>(layer);
    const int32_t window = i < spec_.layer_window.size() ? spec_.layer_window[i] : 0;
    by_window[window].layers.push_back(layer);
    by_window[window].window = window;
  }
  int64_t bytes_per_block = 0;  // of all groups
  for (auto& [window, group] : by_window) {
    group.layout = {.num_layers = static_cast<int32_t>(group.layers.size()),
                    .num_kv_heads = spec_.num_kv_heads,
                    .head_dim = spec_.head_dim,
                    .block_size = options_.block_size};
    bytes_per_block += group.layout.block_floats() * 4;
    groups_.push_back(group);
  }
  const auto model_len = static_cast<int32_t>(std::min<int64_t>(
      RopeMaxPosition(spec_.rope, spec_.max_position), std::numeric_limits<int32_t>::max() / 2));
  int32_t length = options_.max_model_len > 0 ? options_.max_model_len : model_len;
  const auto blocks_for = [this](int64_t tokens) {
    return (tokens + options_.block_size - 1) / options_.block_size;
  };
  const int64_t all_slots = blocks_for(length) * options_.max_num_seqs + 1;
  int64_t blocks = options_.kv_cache_bytes > 0
                       ? options_.kv_cache_bytes / bytes_per_block
                       : std::min(all_slots, MachineBytes() / 4 / bytes_per_block);
  blocks = std::min<int64_t>(blocks, std::numeric_limits<int32_t>::max() / 2);
  if (blocks < 2) {
    return InvalidArgument("kv-cache-memory-bytes %d hold no block of %d tokens (%d bytes)",
                           options_.kv_cache_bytes, options_.block_size, bytes_per_block);
  }
  const int64_t fits = (blocks - 1) * options_.block_size;
  if (length > fits) {
    if (options_.max_model_len > 0) {
      return InvalidArgument(
          "max-model-len %d needs %d bytes of KV cache, there are %d: lower it or raise "
          "--kv-cache-memory-bytes",
          length, blocks_for(length) * bytes_per_block, blocks * bytes_per_block);
    }
    length = static_cast<int32_t>(fits);
  }
  info_.device = absl::StrFormat("CPU (%d thread%s, %s)", pool_.num_threads(),
                                 pool_.num_threads() == 1 ? "" : "s", kernels_.name);
  info_.vocab_size = spec_.vocab_size;
  info_.max_model_len = length;
  info_.block_size = options_.block_size;
  info_.max_num_seqs = options_.max_num_seqs;
  info_.max_num_batched_tokens = options_.max_num_batched_tokens;
  info_.weight_bytes = weights_.bytes();
  for (const CpuKvGroup& group : groups_) {
    const int64_t bytes = group.layout.block_floats() * 4;
    info_.kv_groups.push_back({.num_layers = group.layout.num_layers,
                               .window = group.window,
                               .num_blocks = static_cast<int32_t>(blocks),
                               .bytes_per_block = bytes});
    info_.kv_bytes += blocks * bytes;
  }
  return absl::OkStatus();
}

absl::Status CpuRunner::MapCache() {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const KvGroupInfo& group = info_.kv_groups[g];
    const size_t bytes =
        static_cast<size_t>(group.num_blocks) * static_cast<size_t>(group.bytes_per_block);
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
      return ResourceExhausted(
          "no memory for a KV cache of %d bytes: lower --kv-cache-memory-bytes", bytes);
    }
    madvise(p, bytes, MADV_HUGEPAGE);
    caches_.emplace_back(static_cast<float*>(p), Unmapper{bytes});
    groups_[g].cache = caches_.back().get();
  }
  return absl::OkStatus();
}

// Prefill chunks of growing size, each once after a warm-up, in the padding block.
void CpuRunner::MeasureChunks() {
  info_.chunk_times = options_.chunk_times;
  if (!info_.chunk_times.empty()) return;
  StepInputBuilder builder;
  StepInput input;
  const std::vector<TokenId> ids(static_cast<size_t>(options_.max_num_batched_tokens), 0);
  const std::vector<BlockId> blocks(ids.size() / options_.block_size + 1, kPaddingBlock);
  const auto measure = [&](int32_t tokens) {
    std::vector<std::span<const BlockId>> tables(groups_.size(), blocks);
    builder.Begin(0, static_cast<int32_t>(groups_.size()));
    builder.AddRow({.num_tokens = tokens}, std::span(ids).first(static_cast<size_t>(tokens)),
                   tables);
    builder.Finish(&input);
    const auto start = std::chrono::steady_clock::now();
    RunForward(input);
    const auto took = std::chrono::steady_clock::now() - start;
    return std::chrono::duration_cast<std::chrono::microseconds>(took).count();
  };
  const int32_t most = std::min(options_.max_num_batched_tokens, info_.max_model_len);
  measure(std::min(most, options_.block_size));
  for (int32_t tokens = options_.block_size; tokens <= most; tokens *= 2) {
    int64_t micros = std::max<int64_t>(measure(tokens), 1);
    if (!info_.chunk_times.empty()) micros = std::max(micros, info_.chunk_times.back().micros);
    info_.chunk_times.push_back({tokens, micros});
    if (micros > 2'000'000) break;  // a large model: the table's end is enough to plan with
  }
}

void CpuRunner::InitSlot(const SlotInit& init) {
  CHECK(init.slot != kPaddingSlot);
  Slot& s = slot(init.slot);
  s.sampler.Init(*init.sampling, init.prompt_ids, init.output_ids, spec_.vocab_size);
  s.last_token = init.output_ids.empty() ? (init.prompt_ids.empty() ? 0 : init.prompt_ids.back())
                                         : init.output_ids.back();
}

absl::Status CpuRunner::LaunchForward(const StepInput& input) {
  for (const StepRow& row : input.rows()) {
    if (row.logits == LogitsKind::kAll || row.logits == LogitsKind::kPooled) {
      return Unimplemented("the CPU runner has no logits of all positions and no pooling yet");
    }
    if (row.adapter_id >= 0) return Unimplemented("the CPU runner has no adapters yet");
  }
  CHECK(input.num_tokens() <= options_.max_num_batched_tokens);
  Flight& flight = flights_[launched_ % kMaxStepsInFlight];
  {
    std::lock_guard<std::mutex> lock(mutex_);
    CHECK(flight.stage == Stage::kFree);
  }
  flight.input = input;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    flight.stage = Stage::kForward;
  }
  changed_.notify_all();
  return absl::OkStatus();
}

absl::Status CpuRunner::LaunchSample(std::span<const RowMask> masks) {
  Flight& flight = flights_[launched_++ % kMaxStepsInFlight];
  flight.masks.assign(masks.begin(), masks.end());
  {
    std::lock_guard<std::mutex> lock(mutex_);
    // The forward pass may still run: then it finds its samples asked for when it ends.
    flight.stage = flight.stage == Stage::kWaitSample ? Stage::kSample : Stage::kForwardThenSample;
  }
  changed_.notify_all();
  return absl::OkStatus();
}

absl::StatusOr<const StepOutput*> CpuRunner::Collect() {
  CHECK(collected_ < launched_);
  Flight& flight = flights_[collected_++ % kMaxStepsInFlight];
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&flight] { return flight.stage == Stage::kDone; });
  std::swap(flight.output, collected_output_);  // the flight may be launched again while it is read
  flight.stage = Stage::kFree;
  return &collected_output_;
}

void CpuRunner::ComputeMain() {
  for (uint64_t n = 0;; ++n) {
    Flight& flight = flights_[n % kMaxStepsInFlight];
    std::unique_lock<std::mutex> lock(mutex_);
    const auto wait_for = [&](auto wanted) {
      changed_.wait(lock, [&] { return stop_ || wanted(flight.stage); });
      return !stop_;
    };
    if (!wait_for([](Stage s) { return s == Stage::kForward || s == Stage::kForwardThenSample; })) {
      return;
    }
    lock.unlock();
    RunForward(flight.input);
    lock.lock();
    flight.stage = flight.stage == Stage::kForwardThenSample ? Stage::kSample : Stage::kWaitSample;
    if (!wait_for([](Stage s) { return s == Stage::kSample; })) return;
    lock.unlock();
    RunSample(flight);
    lock.lock();
    flight.stage = Stage::kDone;
    lock.unlock();
    changed_.notify_all();
  }
}

void CpuRunner::RunForward(const StepInput& input) {
  UnpackStep(
      input, options_.block_size, rope_, [this](SlotId id) { return slot(id).last_token; }, &step_);
  ops_->BeginStep(step_);
  RunTransformer(spec_, weights_, *ops_);
}

void CpuRunner::RunSample(Flight& flight) {
  num_sampled_ = 0;
  int32_t last = 0;  // rows with logits so far
  for (const StepRow& row : flight.input.rows()) {
    const bool has_logits = row.logits == LogitsKind::kLast;
    CHECK(row.output_index < 0 || has_logits);
    if (row.output_index >= 0) {
      if (sampled_.size() == num_sampled_) sampled_.emplace_back();
      SampledRow& sampled = sampled_[num_sampled_++];
      sampled.slot = row.slot;
      sampled.output_index = row.output_index;
      sampled.last = last;
      sampled.logprobs.clear();
    }
    if (has_logits) ++last;
  }
  const size_t piece = logits_.size() / static_cast<size_t>(spec_.vocab_size);
  for (size_t first = 0; first < num_sampled_; first += piece) {
    SampleRows(flight.masks, first, std::min(piece, num_sampled_ - first));
  }
  flight.output.step_id = flight.input.step_id();
  WriteOutput(&flight.output);
}

void CpuRunner::SampleRows(std::span<const RowMask> masks, size_t first, size_t count) {
  // Rows that sample are nearly always all rows with logits; others between them are computed too.
  const int32_t first_last = sampled_[first].last;
  size_t end = first;
  while (end < first + count && sampled_[end].last - first_last < static_cast<int32_t>(count))
    ++end;
  ops_->Head(weights_.head(), first_last, sampled_[end - 1].last - first_last + 1, logits_.data());
  const auto vocab = static_cast<size_t>(spec_.vocab_size);
  pool_.Run(static_cast<int64_t>(end - first), 1, [&](int64_t from, int64_t to, int thread) {
    for (int64_t i = from; i < to; ++i) {
      SampledRow& row = sampled_[first + static_cast<size_t>(i)];
      const std::span<const float> logits(
          logits_.data() + static_cast<size_t>(row.last - first_last) * vocab, vocab);
      std::span<const uint32_t> allowed;
      for (const RowMask& mask : masks) {
        if (mask.slot == row.slot) allowed = mask.allowed;
      }
      row.result = samplers_[static_cast<size_t>(thread)].Sample(
          slot(row.slot).sampler, logits, allowed, row.output_index, &row.logprobs);
    }
  });
  if (logits_hook_) {
    for (size_t i = first; i < end; ++i) {
      const SampledRow& row = sampled_[i];
      const auto at = static_cast<size_t>(row.last - first_last) * vocab;
      logits_hook_(row.slot, row.output_index, std::span<const float>(logits_).subspan(at, vocab));
    }
  }
  for (size_t i = first; i < end; ++i) {
    Slot& s = slot(sampled_[i].slot);
    s.last_token = sampled_[i].result.token;
    s.sampler.CountOutput(s.last_token);
  }
  if (end < first + count) SampleRows(masks, end, first + count - end);
}

void CpuRunner::WriteOutput(StepOutput* output) {
  output->rows.clear();
  output->tokens.clear();
  output->logprobs.clear();
  for (size_t i = 0; i < num_sampled_; ++i) {
    const SampledRow& row = sampled_[i];
    RowOutput out;
    out.slot = row.slot;
    out.token_begin = static_cast<int32_t>(output->tokens.size());
    output->tokens.push_back(row.result.token);
    out.token_end = out.token_begin + 1;
    out.logprob_begin = static_cast<int32_t>(output->logprobs.size());
    output->logprobs.insert(output->logprobs.end(), row.logprobs.begin(), row.logprobs.end());
    out.logprob_end = static_cast<int32_t>(output->logprobs.size());
    out.sampled_rank = row.result.rank;
    out.nonfinite_logits = row.result.nonfinite;
    output->rows.push_back(out);
  }
}

}  // namespace penstock
