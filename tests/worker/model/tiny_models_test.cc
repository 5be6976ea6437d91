// Small random models of each family against the logits that HF transformers computes, with prefill
// in one piece, in chunks, and after a prefix hit, with each instruction set of this machine
// (tests/tools/make_tiny_models.py).

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "runner_harness.h"
#include "worker/model/weight_source.h"

namespace penstock {
namespace {

constexpr int32_t kPositions[] = {1, 17, 300};

struct Golden {
  std::vector<TokenId> ids;
  std::vector<std::vector<float>> logits;  // per position
};

std::filesystem::path Folder() {
  const char* data = std::getenv("PENSTOCK_TEST_DATA");
  return std::filesystem::path(data != nullptr ? data : "tests/data") / "model/tiny";
}

Golden ReadGolden(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  uint32_t sizes[2] = {};
  in.read(reinterpret_cast<char*>(sizes), sizeof(sizes));
  Golden golden;
  golden.ids.resize(sizes[0]);
  in.read(reinterpret_cast<char*>(golden.ids.data()), static_cast<std::streamsize>(4 * sizes[0]));
  for (size_t i = 0; i < std::size(kPositions); ++i) {
    golden.logits.emplace_back(sizes[1]);
    in.read(reinterpret_cast<char*>(golden.logits.back().data()),
            static_cast<std::streamsize>(4 * sizes[1]));
  }
  EXPECT_TRUE(in.good()) << path;
  return golden;
}

void ExpectClose(const std::vector<float>& got, const std::vector<float>& expected,
                 const std::string& what) {
  ASSERT_EQ(got.size(), expected.size());
  float largest = 0;
  float difference = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    difference = std::max(difference, std::abs(got[i] - expected[i]));
  }
  EXPECT_LE(difference, 1e-4f * largest) << what;
}

// The logits of each position, once per way of computing them; checked against the golden ones.
using PositionLogits = std::vector<std::vector<float>>;
void RunModel(const ModelFiles& files, const Golden& golden, kernels::Isa isa,
              PositionLogits* computed) {
  const auto length = static_cast<int32_t>(golden.ids.size());
  auto runner = CpuRunner::Create(files.spec, *files.weights,
                                  {.num_threads = 1,
                                   .kv_cache_bytes = 16 << 20,
                                   // What the length-dependent RoPE kinds were computed for.
                                   .max_model_len = length,
                                   .max_num_seqs = 8,
                                   .max_num_batched_tokens = 512,
                                   .isa = isa,
                                   .chunk_times = {{16, 100}}});
  ASSERT_TRUE(runner.ok()) << runner.status();
  RunnerHarness harness(*std::move(runner));
  const SamplingParams greedy = {.temperature = 0};
  for (size_t p = 0; p < std::size(kPositions); ++p) {
    const std::string at = "position " + std::to_string(kPositions[p]);
    const std::vector<TokenId> ids(golden.ids.begin(), golden.ids.begin() + kPositions[p] + 1);
    TestSequence whole = harness.Begin(1, ids, greedy);
    harness.Generate(whole, 512, 1);
    ExpectClose(harness.logits.at({1, 0}), golden.logits[p], at + " in one piece");
    TestSequence chunked = harness.Begin(2, ids, greedy);
    harness.Generate(chunked, 48, 1);
    EXPECT_EQ(harness.logits.at({2, 0}), harness.logits.at({1, 0})) << at << " in chunks";
    computed->push_back(harness.logits.at({1, 0}));
    if (kPositions[p] < 100) continue;
    TestSequence hit = harness.Begin(3, ids, greedy);
    hit.blocks.assign(whole.blocks.begin(), whole.blocks.begin() + 10);
    hit.computed = 10 * harness.runner->info().block_size;
    harness.Generate(hit, 64, 1);
    EXPECT_EQ(harness.logits.at({3, 0}), harness.logits.at({1, 0})) << at << " prefix hit";
  }
}

class TinyModels : public ::testing::TestWithParam<std::string> {};

TEST_P(TinyModels, LogitsAreThoseOfTransformers) {
  const std::filesystem::path folder = Folder() / GetParam();
  const Golden golden = ReadGolden(folder / "golden.bin");
  auto files = OpenModelFiles(folder.string(), LoadFormat::kAuto);
  ASSERT_TRUE(files.ok()) << files.status();
  PositionLogits expected;
  RunModel(*files, golden, kernels::DetectIsa(), &expected);
  for (const kernels::Isa isa : {kernels::Isa::kScalar, kernels::Isa::kAvx2}) {
    if (!kernels::IsaSupported(isa) || isa == kernels::DetectIsa()) continue;
    // The plain loops take seconds a model under the sanitizers: one model has to do.
    if (isa == kernels::Isa::kScalar && GetParam() != "qwen3") continue;
    PositionLogits computed;
    RunModel(*files, golden, isa, &computed);
    EXPECT_EQ(computed, expected) << kernels::KernelsFor(isa).name;
  }
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(Folder())) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(TinyModelsTest, AllFamiliesAreHere) { EXPECT_GE(Names().size(), 11u); }

INSTANTIATE_TEST_SUITE_P(Families, TinyModels,
                         ::testing::Values("llama", "llama_bias", "llama_dynamic", "llama_linear",
                                           "llama_llama3", "llama_longrope", "llama_yarn",
                                           "mistral_window", "qwen2", "qwen3", "smollm"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace penstock
