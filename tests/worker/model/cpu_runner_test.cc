// The CPU runner on small random models: the same bits alone and in company, for any chunk, prefix
// hit, depth, number of threads and instruction set.

#include "worker/model/cpu_runner.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "runner_harness.h"
#include "worker/model/weight_source.h"

namespace penstock {
namespace {

ModelSpec SmallSpec() {
  ModelSpec spec;
  spec.architecture = "LlamaForCausalLM";
  spec.vocab_size = 200;
  spec.hidden_size = 64;
  spec.intermediate_size = 96;
  spec.num_layers = 3;
  spec.num_heads = 4;
  spec.num_kv_heads = 2;
  spec.head_dim = 16;
  spec.max_position = 512;
  spec.rope.rotary_dim = 16;
  spec.layer_window = {0, 0, 0};
  spec.weights_dtype = "float32";
  return spec;
}

CpuRunnerOptions SmallOptions() {
  return {.num_threads = 1,
          .max_num_seqs = 40,
          .max_num_batched_tokens = 256,
          .chunk_times = {{16, 100}}};
}

std::unique_ptr<CpuRunner> MakeRunner(const ModelSpec& spec, const CpuRunnerOptions& options) {
  auto source = MakeDummySource(spec, 7);
  EXPECT_TRUE(source.ok()) << source.status();
  auto runner = CpuRunner::Create(spec, **source, options);
  EXPECT_TRUE(runner.ok()) << runner.status();
  return *std::move(runner);
}

std::vector<TokenId> Prompt(int32_t length, int32_t seed) {
  std::vector<TokenId> ids;
  for (int32_t i = 0; i < length; ++i) ids.push_back((i * 37 + seed * 11 + i * i) % 200);
  return ids;
}

const SamplingParams kGreedy = {.temperature = 0};

// Prompt of 90, then 12 tokens, alone: their logits.
struct Alone {
  RunnerHarness::Logits logits;
  std::vector<TokenId> tokens;
};
Alone RunAlone(const ModelSpec& spec, const CpuRunnerOptions& options, int32_t chunk,
               const SamplingParams& sampling, int32_t seed = 1) {
  RunnerHarness harness(MakeRunner(spec, options));
  TestSequence s = harness.Begin(1, Prompt(90, seed), sampling);
  Alone result;
  result.tokens = harness.Generate(s, chunk, 12);
  result.logits = harness.logits;
  return result;
}

void ExpectSameLogits(const RunnerHarness::Logits& got, int32_t slot, const Alone& alone,
                      const std::string& what) {
  for (int32_t i = 0; i < 12; ++i) {
    const auto& a = got.at({slot, i});
    const auto& b = alone.logits.at({1, i});
    ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0)
        << what << ", output " << i;
  }
}

TEST(CpuRunnerTest, BitsDoNotDependOnChunksThreadsOrInstructions) {
  ModelSpec spec = SmallSpec();
  spec.layer_window = {0, 40, 40};  // two KV groups
  const Alone alone = RunAlone(spec, SmallOptions(), 90, kGreedy);
  for (const int32_t chunk : {1, 16, 37}) {
    ExpectSameLogits(RunAlone(spec, SmallOptions(), chunk, kGreedy).logits, 1, alone,
                     "chunk " + std::to_string(chunk));
  }
  for (const int32_t block_size : {32, 64}) {
    CpuRunnerOptions options = SmallOptions();
    options.block_size = block_size;
    options.num_threads = 3;
    ExpectSameLogits(RunAlone(spec, options, 90, kGreedy).logits, 1, alone,
                     "block " + std::to_string(block_size));
  }
  for (const kernels::Isa isa :
       {kernels::Isa::kScalar, kernels::Isa::kAvx2, kernels::Isa::kAvx512}) {
    if (!kernels::IsaSupported(isa)) continue;
    CpuRunnerOptions options = SmallOptions();
    options.isa = isa;
    ExpectSameLogits(RunAlone(spec, options, 48, kGreedy).logits, 1, alone,
                     kernels::KernelsFor(isa).name);
  }
}

TEST(CpuRunnerTest, BatchOf32GivesTheBitsOfEachAlone) {
  const ModelSpec spec = SmallSpec();
  const SamplingParams seeded = {.temperature = 0.8f, .top_p = 0.9f, .seed = 5};
  RunnerHarness harness(MakeRunner(spec, SmallOptions()));
  std::vector<TestSequence> sequences;
  for (int32_t i = 0; i < 32; ++i) {
    sequences.push_back(harness.Begin(i + 1, Prompt(90, i % 3), i % 2 == 0 ? kGreedy : seeded));
  }
  // Prefill in pairs, then all decode together, two steps in flight, tokens unknown to the host.
  for (size_t i = 0; i < 32; i += 2) {
    harness.Run({{&sequences[i], 60}, {&sequences[i + 1], 90, true}});
    harness.Run({{&sequences[i], 30, true}});
  }
  std::vector<StepPart> all;
  for (TestSequence& s : sequences) all.push_back({&s, 1, true, true});
  harness.Launch(all);
  for (int32_t step = 1; step < 11; ++step) {
    harness.Launch(all);
    harness.Collect();
  }
  harness.Collect();
  for (int32_t i = 0; i < 6; ++i) {
    const Alone alone = RunAlone(spec, SmallOptions(), 90, i % 2 == 0 ? kGreedy : seeded, i % 3);
    ExpectSameLogits(harness.logits, i + 1, alone, "sequence " + std::to_string(i));
    ExpectSameLogits(
        harness.logits, i + 25,
        RunAlone(spec, SmallOptions(), 90, i % 2 == 0 ? kGreedy : seeded, (i + 24) % 3),
        "sequence " + std::to_string(i + 24));
  }
}

TEST(CpuRunnerTest, PrefixHitGivesTheSameBits) {
  const ModelSpec spec = SmallSpec();
  const Alone alone = RunAlone(spec, SmallOptions(), 90, kGreedy);
  RunnerHarness harness(MakeRunner(spec, SmallOptions()));
  TestSequence first = harness.Begin(1, Prompt(90, 1), kGreedy);
  harness.Generate(first, 90, 1);
  TestSequence second = harness.Begin(2, Prompt(90, 1), kGreedy);
  second.blocks.assign(first.blocks.begin(), first.blocks.begin() + 4);  // 64 tokens
  second.computed = 64;
  harness.Generate(second, 16, 12);
  ExpectSameLogits(harness.logits, 2, alone, "prefix hit");
}

TEST(CpuRunnerTest, MaskMayArriveBetweenForwardAndSample) {
  RunnerHarness harness(MakeRunner(SmallSpec(), SmallOptions()));
  TestSequence s = harness.Begin(3, Prompt(20, 1), kGreedy);
  std::vector<uint32_t> allowed(7);
  allowed[150 / 32] = 1u << (150 % 32);
  const RowMask mask = {.slot = s.slot, .allowed = allowed};
  harness.Launch({{&s, 20, true}}, {&mask, 1});
  EXPECT_EQ(harness.Collect().tokens, std::vector<TokenId>{150});
}

TEST(CpuRunnerTest, PenaltiesFollowSampledTokens) {
  // A huge presence penalty: no token comes twice.
  SamplingParams sampling = kGreedy;
  sampling.presence_penalty = 1000.0f;
  RunnerHarness harness(MakeRunner(SmallSpec(), SmallOptions()));
  TestSequence s = harness.Begin(1, Prompt(30, 2), sampling);
  std::vector<TokenId> tokens = harness.Generate(s, 30, 100);
  std::sort(tokens.begin(), tokens.end());
  EXPECT_EQ(std::unique(tokens.begin(), tokens.end()), tokens.end());
}

TEST(CpuRunnerTest, OptionsAndSpecsAreChecked) {
  const ModelSpec spec = SmallSpec();
  auto source = MakeDummySource(spec, 7);
  CpuRunnerOptions options = SmallOptions();
  options.block_size = 20;
  EXPECT_FALSE(CpuRunner::Create(spec, **source, options).ok());
  options = SmallOptions();
  options.kv_cache_bytes = 100;
  EXPECT_FALSE(CpuRunner::Create(spec, **source, options).ok());
  options = SmallOptions();
  options.kv_cache_bytes = 1 << 20;  // 3 layers x 2 heads x 16 x 2 x 4 bytes a token = 768
  options.max_model_len = 4096;
  EXPECT_EQ(CpuRunner::Create(spec, **source, options).status().code(),
            absl::StatusCode::kInvalidArgument);
  options.max_model_len = 512;
  auto runner = CpuRunner::Create(spec, **source, options);
  ASSERT_TRUE(runner.ok());
  EXPECT_EQ((*runner)->info().kv_groups[0].num_blocks, (1 << 20) / (768 * 16));
  EXPECT_EQ((*runner)->info().max_model_len, 512);
}

TEST(CpuRunnerTest, ChunkTimesAreMeasured) {
  CpuRunnerOptions options = SmallOptions();
  options.chunk_times.clear();
  const auto runner = MakeRunner(SmallSpec(), options);
  const auto& times = runner->info().chunk_times;
  ASSERT_EQ(times.size(), 5u);  // 16 to 256
  for (size_t i = 1; i < times.size(); ++i) {
    EXPECT_EQ(times[i].tokens, 2 * times[i - 1].tokens);
    EXPECT_GE(times[i].micros, times[i - 1].micros);
  }
}

}  // namespace
}  // namespace penstock
