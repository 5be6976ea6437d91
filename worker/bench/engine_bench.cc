#include "worker/bench/engine_bench.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <span>

#include "common/base/exit_codes.h"
#include "common/base/status.h"
#include "worker/model/cuda_options.h"
#include "worker/model/memory_report.h"
#include "worker/model/weight_source.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int32_t kWarmSteps = 8;
constexpr int kPrefillRuns = 5;

constexpr char kHelp[] =
    R"(penstock bench engine --model-config FILE [--batch 1,8,32] [--context 1024] [--output 128]
    [--prefill 128,1024,8192] [--max-num-batched-tokens 8192] [--block-size 16] [--no-graphs]
    [--bandwidth-tb 4.3] [--tflops 790] [--json]
Times a model's shapes with random weights on the GPU: decode steps at a mean context, and prefills,
each as a share of its floor: what must be read at that bandwidth, or computed at that rate. The
list 0 skips a part. worker/model/configs has configurations.
)";

double Millis(Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

absl::StatusOr<std::vector<int32_t>> ParseList(const std::string& flag, const std::string& text) {
  std::vector<int32_t> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    int32_t number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc() || number < 0 || (next < end && *next != ',')) {
      return InvalidArgument("%s: '%s' is no list of numbers such as 1,8,32", flag, text);
    }
    if (number > 0) numbers.push_back(number);
    at = next + (next < end ? 1 : 0);
  }
  return numbers;
}

// What a step must read and compute at least.
class Floor {
 public:
  Floor(const ModelSpec& spec, const EngineBenchOptions& options)
      : spec_(spec), bandwidth_(options.bandwidth_tb * 1e12), flops_(options.tflops * 1e12) {
    const double hidden = spec.hidden_size;
    const double heads = static_cast<double>(spec.num_heads) * spec.head_dim;
    const double kv = static_cast<double>(spec.num_kv_heads) * spec.head_dim;
    layers_ = spec.num_layers *
              (hidden * (heads + 2 * kv) + heads * hidden + 3.0 * hidden * spec.intermediate_size);
    head_ = hidden * spec.vocab_size;
  }
  double DecodeMs(double batch, double context) const {
    const double kv_bytes = batch * context * static_cast<double>(KvBytesPerToken(spec_, 2));
    return Linear(layers_, batch) + Linear(head_, batch) + kv_bytes / bandwidth_ * 1e3;
  }
  double PrefillMs(double tokens) const {
    const double attention = 4.0 * spec_.num_layers * spec_.num_heads * spec_.head_dim *
                             (tokens * (tokens + 1) / 2) / flops_ * 1e3;
    return Linear(layers_, tokens) + Linear(head_, 1) + attention;
  }

 private:
  double Linear(double parameters, double rows) const {
    return std::max(2 * parameters / bandwidth_, 2 * parameters * rows / flops_) * 1e3;
  }
  const ModelSpec& spec_;
  const double bandwidth_, flops_;
  double layers_ = 0, head_ = 0;  // parameters
};

class Bench {
 public:
  Bench(const EngineBenchOptions& options, const ModelSpec& spec, ModelRunner& runner)
      : options_(options), floor_(spec, options), runner_(runner) {
    length_ = options.context + options.output + 2 * kWarmSteps;
    per_sequence_ = (length_ + options.block_size - 1) / options.block_size;
    const SamplingParams greedy = {.temperature = 0};
    for (int32_t s = 1; s <= runner.info().max_num_seqs; ++s) {
      runner_.InitSlot({.slot = SlotId{s}, .sampling = &greedy});
    }
    vocab_ = spec.vocab_size;
  }

  absl::Status CheckCache() const {
    const int32_t most = runner_.info().max_num_seqs;
    for (const KvGroupInfo& group : runner_.info().kv_groups) {
      if (int64_t{most} * per_sequence_ < group.num_blocks) continue;
      return ResourceExhausted(
          "--batch %d at --context %d needs %d KV blocks, %d fit: lower one of them", most,
          options_.context, int64_t{most} * per_sequence_ + 1, group.num_blocks);
    }
    return absl::OkStatus();
  }

  // Fills the cache: real keys and values, for data of one value times faster.
  absl::Status FillCache() {
    const int32_t start = StartPosition();
    const int32_t sequences = *std::max_element(options_.batches.begin(), options_.batches.end());
    for (int32_t s = 0; s < sequences; ++s) {
      for (int32_t from = 0; from < start; from += options_.max_num_batched_tokens) {
        const int32_t to = std::min(from + options_.max_num_batched_tokens, start);
        RETURN_IF_ERROR(Launch([&] { AddPrefill(s, from, to, per_sequence_, to == start); }));
        RETURN_IF_ERROR(Collect());
      }
    }
    return absl::OkStatus();
  }

  absl::Status Decode(int32_t batch) {
    std::vector<double> steps;
    std::vector<double> launches;
    const int32_t start = StartPosition();
    const int32_t count = kWarmSteps + options_.output;
    Clock::time_point last;
    for (int32_t i = 0; i <= count; ++i) {
      if (i < count) {
        const auto before = Clock::now();
        RETURN_IF_ERROR(Launch([&] { AddDecodes(batch, start + i); }));
        if (i > kWarmSteps) launches.push_back(Millis(Clock::now() - before) * 1e3);
      }
      if (i == 0) continue;  // one step ahead
      RETURN_IF_ERROR(Collect());
      const auto now = Clock::now();
      if (i > kWarmSteps) steps.push_back(Millis(now - last));
      last = now;
    }
    double total = 0;
    for (const double ms : steps) total += ms;
    const double mean = total / static_cast<double>(steps.size());
    const double floor = floor_.DecodeMs(batch, options_.context);
    if (options_.json) {
      std::printf(
          "%s{\"batch\": %d, \"context\": %d, \"ms\": %.4f, \"median_ms\": %.4f, "
          "\"tokens_per_s\": %.1f, \"floor_ms\": %.4f, \"host_us\": %.1f}",
          separator_, batch, options_.context, mean, Median(steps), batch / mean * 1e3, floor,
          Median(launches));
    } else {
      std::printf(
          "decode  batch %4d  context %6d  %8.3f ms/step (median %.3f)  %9.0f tok/s  "
          "%5.1f %% of floor (%.3f ms)  host %.0f us\n",
          batch, options_.context, mean, Median(steps), batch / mean * 1e3, floor / mean * 100,
          floor, Median(launches));
    }
    separator_ = ",\n ";
    std::fflush(stdout);
    return absl::OkStatus();
  }

  absl::Status Prefill(int32_t tokens) {
    std::vector<double> times;
    const int32_t blocks = (tokens + options_.block_size - 1) / options_.block_size;
    for (int run = 0; run <= kPrefillRuns; ++run) {
      const auto before = Clock::now();
      int32_t flying = 0;
      for (int32_t from = 0; from < tokens; from += options_.max_num_batched_tokens) {
        const int32_t to = std::min(from + options_.max_num_batched_tokens, tokens);
        if (flying == kMaxStepsInFlight) {
          RETURN_IF_ERROR(Collect());
          --flying;
        }
        RETURN_IF_ERROR(Launch([&] { AddPrefill(0, from, to, blocks, to == tokens); }));
        ++flying;
      }
      for (; flying > 0; --flying) RETURN_IF_ERROR(Collect());
      if (run > 0) times.push_back(Millis(Clock::now() - before));
    }
    const double ms = Median(times);
    const double floor = floor_.PrefillMs(tokens);
    if (options_.json) {
      std::printf("%s{\"prefill\": %d, \"ms\": %.4f, \"tokens_per_s\": %.1f, \"floor_ms\": %.4f}",
                  separator_, tokens, ms, tokens / ms * 1e3, floor);
    } else {
      std::printf("prefill %6d tokens  %8.3f ms  %9.0f tok/s  %5.1f %% of floor (%.3f ms)\n",
                  tokens, ms, tokens / ms * 1e3, floor / ms * 100, floor);
    }
    separator_ = ",\n ";
    std::fflush(stdout);
    return absl::OkStatus();
  }

 private:
  int32_t StartPosition() const {
    return std::max(1, options_.context - options_.output / 2 - kWarmSteps);
  }

  std::vector<BlockId> Blocks(int32_t sequence, int32_t count) const {
    std::vector<BlockId> blocks;
    for (int32_t b = 0; b < count; ++b) blocks.push_back(BlockId{sequence * count + b + 1});
    return blocks;
  }
  void AddRow(const StepRow& row, std::span<const TokenId> ids, int32_t blocks_per_sequence) {
    const std::vector<BlockId> blocks = Blocks(Value(row.slot) - 1, blocks_per_sequence);
    const std::vector<std::span<const BlockId>> tables(runner_.info().kv_groups.size(), blocks);
    builder_.AddRow(row, ids, tables);
  }
  void AddPrefill(int32_t sequence, int32_t from, int32_t to, int32_t blocks, bool sample) {
    std::vector<TokenId> ids;
    for (int32_t i = from; i < to; ++i) {
      ids.push_back(static_cast<int32_t>((int64_t{i} * 7919 + sequence * 104'729) % vocab_));
    }
    AddRow({.slot = SlotId{sequence + 1},
            .num_tokens = to - from,
            .start_position = from,
            .output_index = sample ? 0 : -1,
            .logits = sample ? LogitsKind::kLast : LogitsKind::kNone},
           ids, blocks);
  }
  void AddDecodes(int32_t batch, int32_t position) {
    for (int32_t s = 0; s < batch; ++s) {
      AddRow({.slot = SlotId{s + 1},
              .num_tokens = 1,
              .start_position = position,
              .output_index = position,
              .logits = LogitsKind::kLast},
             {}, per_sequence_);
    }
  }
  absl::Status Launch(const std::function<void()>& add_rows) {
    builder_.Begin(++step_, static_cast<int32_t>(runner_.info().kv_groups.size()));
    add_rows();
    builder_.Finish(&input_);
    RETURN_IF_ERROR(runner_.LaunchForward(input_));
    return runner_.LaunchSample({});
  }
  absl::Status Collect() {
    ASSIGN_OR_RETURN(const StepOutput* output, runner_.Collect());
    for (const RowOutput& row : output->rows) {
      if (row.nonfinite_logits) return Internal("step %d: logits are not finite", output->step_id);
    }
    return absl::OkStatus();
  }

  const EngineBenchOptions& options_;
  const Floor floor_;
  ModelRunner& runner_;
  StepInputBuilder builder_;
  StepInput input_;
  uint64_t step_ = 0;
  int32_t length_ = 0;
  int32_t per_sequence_ = 0;
  int32_t vocab_ = 0;
  const char* separator_ = " ";
};

}  // namespace

absl::StatusOr<EngineBenchOptions> ParseEngineBench(std::span<const std::string> args) {
  EngineBenchOptions options;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& flag = args[i];
    if (flag == "--json") {
      options.json = true;
      continue;
    }
    if (flag == "--no-graphs") {
      options.use_graphs = false;
      continue;
    }
    if (i + 1 == args.size()) return InvalidArgument("%s: unknown, or a value is missing", flag);
    const std::string& value = args[++i];
    const auto number = [&](int32_t* out) -> absl::Status {
      ASSIGN_OR_RETURN(const std::vector<int32_t> list, ParseList(flag, value));
      if (list.size() != 1) return InvalidArgument("%s: '%s' is not one number", flag, value);
      *out = list[0];
      return absl::OkStatus();
    };
    if (flag == "--model-config" || flag == "--model") {
      options.model_config = value;
    } else if (flag == "--batch") {
      ASSIGN_OR_RETURN(options.batches, ParseList(flag, value));
    } else if (flag == "--prefill") {
      ASSIGN_OR_RETURN(options.prefills, ParseList(flag, value));
    } else if (flag == "--context") {
      RETURN_IF_ERROR(number(&options.context));
    } else if (flag == "--output") {
      RETURN_IF_ERROR(number(&options.output));
    } else if (flag == "--max-num-batched-tokens") {
      RETURN_IF_ERROR(number(&options.max_num_batched_tokens));
    } else if (flag == "--block-size") {
      RETURN_IF_ERROR(number(&options.block_size));
    } else if (flag == "--bandwidth-tb") {
      options.bandwidth_tb = std::atof(value.c_str());
    } else if (flag == "--tflops") {
      options.tflops = std::atof(value.c_str());
    } else {
      return InvalidArgument("%s: unknown", flag);
    }
  }
  if (options.model_config.empty()) return InvalidArgument("--model-config: give a config.json");
  return options;
}

absl::Status RunEngineBench(const EngineBenchOptions& options) {
  const auto start = Clock::now();
  ASSIGN_OR_RETURN(const ModelFiles files,
                   OpenModelFiles(options.model_config, LoadFormat::kDummy));
  const int32_t most = options.batches.empty()
                           ? 1
                           : *std::max_element(options.batches.begin(), options.batches.end());
  int32_t longest = options.context + options.output + 4 * kWarmSteps;
  for (const int32_t tokens : options.prefills) longest = std::max(longest, tokens);
  ASSIGN_OR_RETURN(const auto runner,
                   CreateCudaRunner(files.spec, *files.weights,
                                    {.max_model_len = longest,
                                     .block_size = options.block_size,
                                     .max_num_seqs = most,
                                     .max_num_batched_tokens = options.max_num_batched_tokens,
                                     .use_graphs = options.use_graphs,
                                     .chunk_times = {{64, 1000}}}));
  const RunnerInfo& info = runner->info();
  std::printf(options.json ? "{\"model\": \"%s\", \"device\": \"%s\", \"weights\": \"%s\", "
                             "\"kv\": \"%s\", \"start_s\": %.2f, \"results\": [\n"
                           : "%s on %s: weights %s, KV %s, ready in %.2f s\n",
              options.model_config.c_str(), info.device.c_str(),
              BytesText(info.weight_bytes).c_str(), BytesText(info.kv_bytes).c_str(),
              Millis(Clock::now() - start) / 1e3);
  Bench bench(options, files.spec, *runner);
  RETURN_IF_ERROR(bench.CheckCache());
  for (const int32_t tokens : options.prefills) RETURN_IF_ERROR(bench.Prefill(tokens));
  if (!options.batches.empty()) RETURN_IF_ERROR(bench.FillCache());
  for (const int32_t batch : options.batches) RETURN_IF_ERROR(bench.Decode(batch));
  if (options.json) std::printf("\n]}\n");
  return absl::OkStatus();
}

int RunEngineBenchCommand(std::span<const std::string> args) {
  if (args.empty() || args[0] == "--help") {
    std::fputs(kHelp, stdout);
    return args.empty() ? kExitUsage : kExitOk;
  }
  const auto options = ParseEngineBench(args);
  if (!options.ok()) {
    std::fprintf(stderr, "%s\n", std::string(options.status().message()).c_str());
    return kExitUsage;
  }
  const absl::Status status = RunEngineBench(*options);
  if (status.ok()) return kExitOk;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return kExitFailure;
}

}  // namespace penstock
