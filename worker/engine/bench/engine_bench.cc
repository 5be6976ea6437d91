// Host time of one engine step (take in, plan, build, collect, publish) with a runner that costs
// nothing, by batch size and context length. Prints microseconds per step.
//   cmake --preset bench && ninja -C build/bench engine_bench && build/bench/bin/engine_bench

#include <benchmark/benchmark.h>

#include <memory>

#include "worker/engine/engine_loop.h"
#include "worker/engine/mailbox.h"
#include "worker/engine/request_check.h"

namespace penstock {
namespace {

constexpr int32_t kBlock = 16;

// Answers every sampling row with the same token and looks at nothing else.
class NullRunner : public ModelRunner {
 public:
  explicit NullRunner(RunnerInfo info) : info_(std::move(info)) {}
  const RunnerInfo& info() const override { return info_; }
  void InitSlot(const SlotInit&) override {}
  absl::Status LaunchForward(const StepInput& input) override {
    StepOutput& out = outputs_[input.step_id() % kMaxStepsInFlight];
    out.step_id = input.step_id();
    out.rows.clear();
    out.tokens.clear();
    for (const StepRow& row : input.rows()) {
      if (row.output_index < 0) continue;
      const auto at = static_cast<int32_t>(out.tokens.size());
      out.rows.push_back({.slot = row.slot, .token_begin = at, .token_end = at + 1});
      out.tokens.push_back(7);
    }
    return absl::OkStatus();
  }
  absl::Status LaunchSample(std::span<const RowMask>) override { return absl::OkStatus(); }
  absl::StatusOr<const StepOutput*> Collect() override {
    return &outputs_[++collected_ % kMaxStepsInFlight];
  }

 private:
  RunnerInfo info_;
  StepOutput outputs_[kMaxStepsInFlight];
  uint64_t collected_ = 0;
};

struct Setup {
  Setup(int32_t batch, int32_t context, int32_t max_len)
      : runner({.device = "null",
                .vocab_size = 1000,
                .max_model_len = max_len,
                .block_size = kBlock,
                .max_num_seqs = batch,
                .max_num_batched_tokens = 8192,
                .kv_groups = {{.num_blocks = 1 + batch * (max_len / kBlock)}}}),
        limits{.max_model_len = max_len,
               .max_num_seqs = batch,
               .max_num_batched_tokens = 8192,
               .prefill_chunk = 1024,
               .block_size = kBlock,
               .vocab_size = 1000},
        inbox(100'000, 1LL << 40),
        box(std::make_shared<Mailbox>(
            64 << 20, [] {}, [] {})) {
    options.now_ns = [] {
      return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
    };
    options.steps_in_flight = 2;
    loop = std::make_unique<EngineLoop>(options, limits, runner, inbox);
    session = inbox.Open(box);
    for (int32_t i = 0; i < batch; ++i) Submit(context, max_len - context);
  }

  void Submit(int32_t prompt, int32_t max_tokens) {
    EngineRequest r;
    r.id = RequestId{++last_id};
    r.session = session;
    for (int32_t i = 0; i < prompt; ++i) {
      r.prompt_ids.push_back(static_cast<TokenId>((last_id * 7 + static_cast<uint64_t>(i)) % 1000));
    }
    r.max_tokens = max_tokens;
    const std::string fingerprint = "bench";
    (void)inbox.Submit(MakeSequence(std::move(r), limits, &fingerprint).value());
  }

  void Turn() {
    (void)loop->Turn().value();
    (void)box->Take(&events);
  }

  EngineOptions options;
  NullRunner runner;
  EngineLimits limits;
  Inbox inbox;
  std::shared_ptr<Mailbox> box;
  std::unique_ptr<EngineLoop> loop;
  StepEvents events;
  uint32_t session = 0;
  uint64_t last_id = 0;
};

// All sequences decode; `batch` of them at about `context` tokens.
void BM_DecodeStep(benchmark::State& state) {
  const auto batch = static_cast<int32_t>(state.range(0));
  const auto context = static_cast<int32_t>(state.range(1));
  auto setup = std::make_unique<Setup>(batch, context, context + 2048);
  const auto warm_up = [&] {
    while (setup->loop->stats().generation_tokens < static_cast<uint64_t>(8 * batch)) setup->Turn();
  };
  warm_up();
  uint64_t last = setup->loop->stats().steps + 1800;
  for (auto _ : state) {
    setup->Turn();
    if (setup->loop->stats().steps < last) continue;
    state.PauseTiming();
    setup = std::make_unique<Setup>(batch, context, context + 2048);
    warm_up();
    last = setup->loop->stats().steps + 1800;
    state.ResumeTiming();
  }
  state.SetLabel("us/step = Time");
}
BENCHMARK(BM_DecodeStep)
    ->ArgNames({"batch", "context"})
    ->ArgsProduct({{1, 32, 256}, {128, 1024, 8192}})
    ->Unit(benchmark::kMicrosecond);

// What a request costs besides its steps: submit, start, prefill row, publish, finish. Batch 256 of
// one-token answers to 200-token prompts.
void BM_RequestTurnover(benchmark::State& state) {
  Setup setup(256, 200, 1024);
  for (int i = 0; i < 4; ++i) setup.Turn();
  const uint64_t before = setup.last_id;
  for (auto _ : state) {
    for (int i = 0; i < 32; ++i) setup.Submit(200, 1);
    setup.Turn();
  }
  state.counters["us/request"] =
      benchmark::Counter(static_cast<double>(setup.last_id - before) * 1e-6,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_RequestTurnover)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace penstock

BENCHMARK_MAIN();
