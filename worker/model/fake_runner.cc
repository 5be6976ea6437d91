#include "worker/model/fake_runner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "common/base/check.h"
#include "common/base/status.h"

namespace penstock {
namespace {

constexpr int64_t kMostBlocks = 200'000;  // by default
constexpr uint64_t kEmptyHistory = 0x6a09e667f3bcc908u;

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2));
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t Extend(uint64_t history, TokenId token) {
  return Mix(history, static_cast<uint64_t>(token) + 1);
}

int64_t SteadyNowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

RunnerInfo MakeInfo(const FakeRunnerOptions& o) {
  RunnerInfo info;
  info.device = "fake";
  info.vocab_size = o.vocab_size;
  info.max_model_len = o.max_model_len;
  info.block_size = o.block_size;
  info.max_num_seqs = o.max_num_seqs;
  info.max_num_batched_tokens = o.max_num_batched_tokens;
  const int32_t blocks_per_sequence = (o.max_model_len + o.block_size - 1) / o.block_size;
  const int32_t num_blocks =
      o.num_blocks > 0
          ? o.num_blocks
          : 1 + static_cast<int32_t>(std::max<int64_t>(
                    blocks_per_sequence,
                    std::min<int64_t>(kMostBlocks,
                                      static_cast<int64_t>(o.max_num_seqs) * blocks_per_sequence)));
  const std::vector<int32_t> windows = o.windows.empty() ? std::vector<int32_t>{0} : o.windows;
  for (const int32_t window : windows) {
    info.kv_groups.push_back({.num_layers = 1,
                              .window = window,
                              .num_blocks = num_blocks,
                              .bytes_per_block = static_cast<int64_t>(o.block_size) * 8});
    info.kv_bytes += static_cast<int64_t>(num_blocks) * o.block_size * 8;
  }
  info.chunk_times = o.chunk_times;
  if (info.chunk_times.empty() && o.step_us + o.token_us > 0) {
    for (int32_t n = o.block_size; n <= o.max_num_batched_tokens; n *= 2) {
      info.chunk_times.push_back({n, o.step_us + n * o.token_us});
    }
  }
  return info;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FakeRunner>> FakeRunner::Create(FakeRunnerOptions options) {
  if (options.vocab_size < 2 || options.first_id < 0 ||
      options.first_id >= options.vocab_size - 1) {
    return InvalidArgument("fake runner: first-id %d and vocab-size %d leave no ids",
                           options.first_id, options.vocab_size);
  }
  if (options.mode == FakeRunnerOptions::Mode::kScript && options.scripts.empty()) {
    return InvalidArgument("fake runner: mode=script needs scripts=FILE");
  }
  for (const auto& script : options.scripts) {
    for (const TokenId id : script) {
      if (id >= 0 && id < options.vocab_size) continue;
      return InvalidArgument("fake runner: script id %d is not below vocab-size %d", id,
                             options.vocab_size);
    }
  }
  if (options.block_size < 1 || options.max_num_seqs < 1 || options.max_model_len < 1) {
    return InvalidArgument("fake runner: block-size, max-num-seqs and max-model-len must be >= 1");
  }
  if (!options.now_ns) options.now_ns = SteadyNowNs;
  if (!options.sleep_ns) {
    options.sleep_ns = [](int64_t ns) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(ns));
    };
  }
  if (options.start_ms > 0) options.sleep_ns(options.start_ms * 1'000'000);
  return std::unique_ptr<FakeRunner>(new FakeRunner(std::move(options)));
}

FakeRunner::FakeRunner(FakeRunnerOptions options)
    : options_(std::move(options)), info_(MakeInfo(options_)) {
  slots_.resize(static_cast<size_t>(info_.max_num_seqs) + 1);
  for (const KvGroupInfo& group : info_.kv_groups) {
    groups_.emplace_back(static_cast<size_t>(group.num_blocks));
  }
}

FakeRunner::~FakeRunner() { ReleaseHang(); }

void FakeRunner::ReleaseHang() {
  {
    std::lock_guard<std::mutex> lock(hang_mutex_);
    hang_over_ = true;
  }
  hang_released_.notify_all();
}

void FakeRunner::InitSlot(const SlotInit& init) {
  CHECK(init.slot != kPaddingSlot);
  Slot& s = slots_[static_cast<size_t>(Value(init.slot))];
  CHECK(s.last_step <= collected_);  // its previous owner is not in flight
  s.sampling = *init.sampling;
  s.history.assign(init.prompt_ids.begin(), init.prompt_ids.end());
  s.history.insert(s.history.end(), init.output_ids.begin(), init.output_ids.end());
  s.num_prompt = static_cast<int32_t>(init.prompt_ids.size());
  s.state = kEmptyHistory;
}

absl::Status FakeRunner::LaunchForward(const StepInput& input) {
  CHECK(sampled_.empty());
  CHECK(input.step_id() > launched_);
  launched_ = input.step_id();
  for (size_t row = 0; row < input.rows().size(); ++row) {
    if (options_.verify) RETURN_IF_ERROR(VerifyRow(input, row));
    RETURN_IF_ERROR(RunRow(input, row));
  }
  Flight& f = flight(launched_);
  f.step_id = launched_;
  const int64_t now = options_.now_ns();
  busy_until_ns_ = std::max(busy_until_ns_, now) +
                   1000 * (options_.step_us + options_.token_us * input.num_tokens());
  f.done_ns = busy_until_ns_;
  return absl::OkStatus();
}

absl::Status FakeRunner::RunRow(const StepInput& input, size_t row_index) {
  const StepRow& row = input.rows()[row_index];
  Slot& s = slots_[static_cast<size_t>(Value(row.slot))];
  const int32_t size = info_.block_size;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const auto blocks = input.row_blocks(row_index, g);
    const auto block_at = [&](int32_t position) -> Block& {
      Block& block =
          groups_[g][static_cast<size_t>(Value(blocks[static_cast<size_t>(position / size)]))];
      if (block.hashes.empty()) block.hashes.resize(static_cast<size_t>(size));
      return block;
    };
    uint64_t history = kEmptyHistory;
    if (row.start_position > 0) {
      const int32_t before = row.start_position - 1;
      history = block_at(before).hashes[static_cast<size_t>(before % size)];
    }
    for (int32_t i = 0; i < row.num_tokens; ++i) {
      const int32_t position = row.start_position + i;
      const TokenId token = row.token_offset < 0
                                ? s.history.back()
                                : input.token_ids()[static_cast<size_t>(row.token_offset + i)];
      history = Extend(history, token);
      Block& block = block_at(position);
      block.hashes[static_cast<size_t>(position % size)] = history;
      block.writer_step = launched_;
      block.writer = row.slot;
    }
    if (options_.verify) {
      for (size_t i = static_cast<size_t>(FirstRead(g, row.start_position) / size);
           i < blocks.size(); ++i) {
        Block& block = groups_[g][static_cast<size_t>(Value(blocks[i]))];
        block.reader_step = launched_;
        block.reader = row.slot;
      }
    }
    // All groups must agree, as layers of one forward pass do.
    s.state = g == 0 ? history : Mix(s.state, history);
  }
  s.last_step = launched_;
  if (row.output_index >= 0) sampled_.push_back({row.slot, row.output_index});
  return absl::OkStatus();
}

int32_t FakeRunner::FirstRead(size_t group, int32_t position) const {
  const int32_t window = info_.kv_groups[group].window;
  return window == 0 ? 0 : std::max(0, position - window + 1);
}

absl::Status FakeRunner::VerifyRow(const StepInput& input, size_t row_index) const {
  const StepRow& row = input.rows()[row_index];
  const auto fail = [&](const char* what) {
    return Internal("fake runner: step %d row %d (slot %d, position %d, %d tokens): %s",
                    input.step_id(), row_index, Value(row.slot), row.start_position, row.num_tokens,
                    what);
  };
  const Slot& s = slot(row.slot);
  const int32_t end = row.start_position + row.num_tokens;
  const int32_t known = static_cast<int32_t>(s.history.size());
  if (end > known) return fail("more positions than tokens");
  if (row.token_offset < 0) {
    if (end != known) return fail("its input is not the last sampled token");
  } else {
    for (int32_t i = 0; i < row.num_tokens; ++i) {
      if (input.token_ids()[static_cast<size_t>(row.token_offset + i)] !=
          s.history[static_cast<size_t>(row.start_position + i)]) {
        return fail("an input token is not the sequence's");
      }
    }
  }
  if (row.output_index >= 0 && row.output_index != end - s.num_prompt) {
    return fail("output_index does not follow its position");
  }
  if (row.output_index < 0 && end == known) return fail("the last token samples nothing");
  for (size_t g = 0; g < groups_.size(); ++g) RETURN_IF_ERROR(VerifyBlocks(input, row_index, g));
  return absl::OkStatus();
}

absl::Status FakeRunner::VerifyBlocks(const StepInput& input, size_t row_index,
                                      size_t group) const {
  const StepRow& row = input.rows()[row_index];
  const auto fail = [&](int32_t position, const char* what) {
    return Internal("fake runner: step %d slot %d group %d position %d: %s", input.step_id(),
                    Value(row.slot), group, position, what);
  };
  const Slot& s = slot(row.slot);
  const auto blocks = input.row_blocks(row_index, group);
  const int32_t size = info_.block_size;
  const int32_t first = FirstRead(group, row.start_position);
  const int32_t end = row.start_position + row.num_tokens;
  if (static_cast<int32_t>(blocks.size()) * size < end) return fail(end, "the table is too short");
  uint64_t expected = kEmptyHistory;
  for (int32_t p = 0; p < end; ++p) {
    expected = Extend(expected, s.history[static_cast<size_t>(p)]);
    if (p < first) continue;
    const BlockId id = blocks[static_cast<size_t>(p / size)];
    if (id == kPaddingBlock) return fail(p, "the padding block inside the window");
    const Block& block = groups_[group][static_cast<size_t>(Value(id))];
    if (p >= row.start_position) {
      const bool in_use = block.reader_step > collected_ && block.reader != row.slot;
      if (in_use) return fail(p, "writes a block that a step in flight uses");
      continue;
    }
    if (block.hashes.empty() || block.hashes[static_cast<size_t>(p % size)] != expected) {
      return fail(p, "its block does not hold these tokens");
    }
    if (block.writer_step > collected_ && block.writer != row.slot) {
      return fail(p, "reads a block of another sequence before it was collected");
    }
  }
  return absl::OkStatus();
}

absl::Status FakeRunner::LaunchSample(std::span<const RowMask> masks) {
  StepOutput& output = flight(launched_).output;
  output.step_id = launched_;
  output.rows.clear();
  output.tokens.clear();
  output.logprobs.clear();
  for (const SampledRow& row : sampled_) EmitRow(row, masks, &output);
  sampled_.clear();
  return absl::OkStatus();
}

void FakeRunner::EmitRow(const SampledRow& row, std::span<const RowMask> masks,
                         StepOutput* output) {
  Slot& s = slots_[static_cast<size_t>(Value(row.slot))];
  TokenId token = Sample(s, row.output_index);
  for (const RowMask& mask : masks) {
    if (mask.slot != row.slot) continue;
    const auto allowed = [&](TokenId id) {
      return (mask.allowed[static_cast<size_t>(id / 32)] >> (id % 32) & 1u) != 0;
    };
    for (int32_t i = 0; i < info_.vocab_size && !allowed(token); ++i) {
      token = (token + 1) % info_.vocab_size;
    }
  }
  s.history.push_back(token);
  RowOutput out;
  out.slot = row.slot;
  out.token_begin = static_cast<int32_t>(output->tokens.size());
  output->tokens.push_back(token);
  out.token_end = out.token_begin + 1;
  out.nonfinite_logits = options_.nonfinite_seed >= 0 &&
                         s.sampling.seed == static_cast<uint64_t>(options_.nonfinite_seed) &&
                         row.output_index == options_.nonfinite_index;
  out.logprob_begin = static_cast<int32_t>(output->logprobs.size());
  if (s.sampling.top_logprobs >= 0) {
    EmitLogprobs(s, token, output);
    out.sampled_rank = 1;
  }
  out.logprob_end = static_cast<int32_t>(output->logprobs.size());
  output->rows.push_back(out);
}

void FakeRunner::EmitLogprobs(const Slot& s, TokenId token, StepOutput* output) const {
  // As if the sampled token had probability 1/2, its successor 1/4, and so on.
  const float half = std::log(0.5f);
  output->logprobs.push_back({token, half});
  for (int32_t i = 0; i < s.sampling.top_logprobs; ++i) {
    output->logprobs.push_back(
        {(token + i) % info_.vocab_size, std::max(half * static_cast<float>(i + 1), -9999.0f)});
  }
}

TokenId FakeRunner::Sample(const Slot& s, int32_t output_index) const {
  uint64_t draw = s.state;
  if (s.sampling.temperature > 0) {
    draw = Mix(Mix(Mix(draw, s.sampling.seed), s.sampling.choice),
               static_cast<uint64_t>(output_index));
  }
  const auto masked = [&](TokenId id) {
    const auto& stops = s.sampling.eos_and_stop_ids;
    return output_index < s.sampling.min_tokens &&
           std::find(stops.begin(), stops.end(), id) != stops.end();
  };
  TokenId token = NextOf(s, output_index, draw);
  for (int32_t i = 0; masked(token) && i < info_.vocab_size; ++i) {
    token = token + 1 < info_.vocab_size ? token + 1 : options_.first_id;
  }
  return token;
}

TokenId FakeRunner::NextOf(const Slot& s, int32_t output_index, uint64_t draw) const {
  const auto& allowed = s.sampling.allowed_token_ids;
  if (!allowed.empty()) return allowed[draw % allowed.size()];
  const size_t i = static_cast<size_t>(output_index);
  switch (options_.mode) {
    case FakeRunnerOptions::Mode::kEcho:
      return output_index < s.num_prompt ? s.history[i] : options_.eos_id;
    case FakeRunnerOptions::Mode::kScript: {
      const auto& script = options_.scripts[s.sampling.seed % options_.scripts.size()];
      return i < script.size() ? script[i] : options_.eos_id;
    }
    case FakeRunnerOptions::Mode::kHash:
      break;
  }
  const uint64_t range = static_cast<uint64_t>(options_.vocab_size - options_.first_id);
  return options_.first_id + static_cast<TokenId>(draw % range);
}

absl::StatusOr<const StepOutput*> FakeRunner::Collect() {
  CHECK(collected_ < launched_);
  Flight* oldest = nullptr;
  for (Flight& f : flights_) {
    if (f.step_id > collected_ && (oldest == nullptr || f.step_id < oldest->step_id)) oldest = &f;
  }
  const auto step = static_cast<int64_t>(oldest->step_id);
  if (step == options_.hang_at_step) {
    std::unique_lock<std::mutex> lock(hang_mutex_);
    hang_released_.wait(lock, [this] { return hang_over_; });
  }
  if (step == options_.fail_at_step) return Internal("fake runner: step %d fails as told", step);
  const int64_t wait_ns = oldest->done_ns - options_.now_ns();
  if (wait_ns > 0) options_.sleep_ns(wait_ns);
  collected_ = oldest->step_id;
  return &oldest->output;
}

}  // namespace penstock
