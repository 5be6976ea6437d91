// Speed of the CPU runner on a model, through the same seam as the engine, two steps in flight:
//   model_bench MODEL [--random] [--threads N] [--isa scalar|avx2|avx512] [--repeat N] [CASE...]
// Cases: prefill512 decode0 decode512 batch32 (default: all). One line each: name, tokens per
// second (the best of the repeats), milliseconds per step, processor milliseconds per step (their
// median: what counts when the machine is busy). --random: MODEL is a config.json, the weights are
// random, Q4_1 with an embedding of Q8_0, as in the default test model.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include "random_weights.h"
#include "worker/model/cpu_runner.h"
#include "worker/model/weight_source.h"

namespace penstock {
namespace {

constexpr int32_t kStreams = 32;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Of all threads. Workers that spin for the next loop count too.
double ProcessorTime() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

absl::StatusOr<ModelFiles> OpenFiles(const std::string& model, bool random) {
  if (!random) return OpenModelFiles(model, LoadFormat::kAuto);
  ModelFiles files;
  files.format = "random Q4_1 and Q8_0";
  ASSIGN_OR_RETURN(files.spec, OpenModelSpec(model));
  ASSIGN_OR_RETURN(files.weights, RandomWeights::Create(files.spec, DType::kQ4_1, DType::kQ8_0));
  return files;
}

class Bench {
 public:
  explicit Bench(CpuRunner& runner) : runner_(runner) {
    for (int32_t i = 0; i < kStreams; ++i) {
      runner_.InitSlot({.slot = SlotId{i + 1}, .sampling = &greedy_});
      for (int32_t b = 0; b < kBlocks; ++b) {
        blocks_[static_cast<size_t>(i)].push_back(BlockId{i * kBlocks + b + 1});
      }
    }
    for (int32_t i = 0; i < 1024; ++i) ids_.push_back(1000 + i * 37 % 40000);
  }

  // `tokens` positions from `start` in chunks; seconds.
  double Prefill(int32_t start, int32_t tokens, int32_t chunk) {
    const double begin = Now();
    for (int32_t at = start; at < start + tokens; at += chunk) {
      const int32_t count = std::min(chunk, start + tokens - at);
      builder_.Begin(++step_, 1);
      AddRow(0, at, count, at + count == start + tokens, true);
      Launch();
      Collect(1);
    }
    Collect(0);
    return Now() - begin;
  }

  // `steps` tokens of each of `streams` sequences from `start`, the first of known input.
  double Decode(int32_t streams, int32_t start, int32_t steps) {
    const double begin = Now();
    for (int32_t i = 0; i < steps; ++i) {
      builder_.Begin(++step_, 1);
      for (int32_t s = 0; s < streams; ++s) AddRow(s, start + i, 1, true, i == 0);
      Launch();
      Collect(1);
    }
    Collect(0);
    return Now() - begin;
  }

 private:
  static constexpr int32_t kBlocks = 64;

  void AddRow(int32_t stream, int32_t at, int32_t count, bool sample, bool known) {
    StepRow row = {.slot = SlotId{stream + 1}, .num_tokens = count, .start_position = at};
    if (sample) {
      row.output_index = at;
      row.logits = LogitsKind::kLast;
    }
    const std::span<const BlockId> table = blocks_[static_cast<size_t>(stream)];
    const auto ids =
        std::span<const TokenId>(ids_).subspan(static_cast<size_t>(at), static_cast<size_t>(count));
    builder_.AddRow(row, known ? ids : std::span<const TokenId>(), {&table, 1});
  }
  void Launch() {
    builder_.Finish(&input_);
    if (!runner_.LaunchForward(input_).ok() || !runner_.LaunchSample({}).ok()) std::abort();
    ++in_flight_;
  }
  void Collect(int32_t leave) {
    for (; in_flight_ > leave; --in_flight_) {
      if (!runner_.Collect().ok()) std::abort();
    }
  }

  CpuRunner& runner_;
  const SamplingParams greedy_ = {.temperature = 0};
  std::vector<TokenId> ids_;
  std::array<std::vector<BlockId>, kStreams> blocks_;
  StepInputBuilder builder_;
  StepInput input_;
  uint64_t step_ = 0;
  int32_t in_flight_ = 0;
};

int Main(int argc, char** argv) {
  std::string model;
  std::vector<std::string> cases;
  CpuRunnerOptions options = {.kv_cache_bytes = int64_t{4} << 30,
                              .max_model_len = 1024,
                              .max_num_seqs = kStreams,
                              .max_num_batched_tokens = 128,
                              .chunk_times = {{16, 1000}}};
  int repeat = 3;
  bool random = false;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--threads" && i + 1 < argc) {
      options.num_threads = std::atoi(argv[++i]);
    } else if (arg == "--repeat" && i + 1 < argc) {
      repeat = std::atoi(argv[++i]);
    } else if (arg == "--random") {
      random = true;
    } else if (arg == "--isa" && i + 1 < argc) {
      const std::string isa = argv[++i];
      options.isa = isa == "scalar" ? kernels::Isa::kScalar
                    : isa == "avx2" ? kernels::Isa::kAvx2
                                    : kernels::Isa::kAvx512;
    } else if (model.empty()) {
      model = arg;
    } else {
      cases.push_back(arg);
    }
  }
  auto files = OpenFiles(model, random);
  if (!files.ok()) {
    std::fprintf(stderr, "model_bench: %s\n", std::string(files.status().message()).c_str());
    return 1;
  }
  auto runner = CpuRunner::Create(files->spec, *files->weights, options);
  if (!runner.ok()) {
    std::fprintf(stderr, "model_bench: %s\n", std::string(runner.status().message()).c_str());
    return 1;
  }
  std::printf("# %s, %s\n", files->format.c_str(), (*runner)->info().device.c_str());
  Bench bench(**runner);
  const auto run = [&](const char* name, int32_t tokens, int32_t steps, auto measure) {
    if (!cases.empty() && std::find(cases.begin(), cases.end(), name) == cases.end()) return;
    double best = 1e30;
    std::vector<double> processor;
    for (int i = 0; i < repeat; ++i) {
      const double begin = ProcessorTime();
      best = std::min(best, measure());
      processor.push_back((ProcessorTime() - begin) * 1e3 / steps);
    }
    std::sort(processor.begin(), processor.end());
    std::printf("%-12s %8.1f tok/s  %8.2f ms/step  %8.2f processor ms/step\n", name, tokens / best,
                best * 1e3 / steps, processor[processor.size() / 2]);
    std::fflush(stdout);
  };
  bench.Prefill(0, 16, 16);  // warm
  run("prefill512", 512, 4, [&] { return bench.Prefill(0, 512, 128); });
  run("decode0", 64, 64, [&] { return bench.Decode(1, 0, 64); });
  run("decode512", 64, 64, [&] { return bench.Decode(1, 512, 64); });
  run("batch32", 32 * kStreams, 32, [&] { return bench.Decode(kStreams, 0, 32); });
  return 0;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) { return penstock::Main(argc, argv); }
