// The CUDA runner on a GPU: tiny models of each family against transformers' logits, whole, in
// chunks, behind a prefix hit and in company; steps queued before the last token is known; sampling
// options; dummy models of real shapes against the CPU runner. With PENSTOCK_TEST_MODEL
// (SmolLM2-135M-Instruct as GGUF) also its greedy streams.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include "common/base/status.h"
#include "common/json/json.h"
#include "worker/model/cpu_runner.h"
#include "worker/model/cuda_options.h"
#include "worker/model/weight_source.h"

namespace penstock {
namespace {

constexpr int32_t kPositions[] = {1, 17, 300};
// transformers' own bf16 forward pass differs from its f32 one by up to 0.061 on these models.
constexpr double kTolerance = 0.06;

std::string DataFolder() { return std::getenv("PENSTOCK_TEST_DATA"); }

#define SKIP_WITHOUT_GPU()                                            \
  if (const absl::Status usable_ = CheckCudaDevice(0); !usable_.ok()) \
  GTEST_SKIP() << std::string(usable_.message())

struct Golden {
  std::vector<TokenId> ids;
  std::map<int32_t, std::vector<float>> logits;  // by position
};

Golden ReadGolden(const std::string& folder) {
  std::ifstream file(folder + "/golden.bin", std::ios::binary);
  EXPECT_TRUE(file.good()) << folder;
  uint32_t sizes[2] = {};
  file.read(reinterpret_cast<char*>(sizes), sizeof(sizes));
  Golden golden;
  golden.ids.resize(sizes[0]);
  file.read(reinterpret_cast<char*>(golden.ids.data()), sizes[0] * 4);
  for (const int32_t position : kPositions) {
    std::vector<float>& row = golden.logits[position];
    row.resize(sizes[1]);
    file.read(reinterpret_cast<char*>(row.data()), sizes[1] * 4);
  }
  EXPECT_TRUE(file.good()) << folder;
  return golden;
}

// |a - b| / |b|, and infinity for NaN.
double RelativeError(std::span<const float> a, std::span<const float> b) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    norm += static_cast<double>(b[i]) * b[i];
  }
  const double error = std::sqrt(difference / norm);
  return std::isnan(error) ? INFINITY : error;
}

// Rows of sequences, each with blocks of its own: sequence s has blocks s * per_sequence + 1 and
// on.
class Driver {
 public:
  Driver(ModelRunner& runner, int32_t max_length)
      : runner_(runner),
        per_sequence_((max_length + runner.info().block_size - 1) / runner.info().block_size) {}

  struct Row {
    int32_t sequence = 0;
    int32_t from = 0;
    std::vector<TokenId> ids;  // empty: one token, the last sampled
    bool sample = true;
    int32_t output_index = 0;
    int32_t blocks_of = -1;  // another sequence's blocks before this row, at block edges
  };

  void Launch(const std::vector<Row>& rows) {
    const auto groups = runner_.info().kv_groups.size();
    StepInputBuilder builder;
    StepInput input;
    builder.Begin(++step_, static_cast<int32_t>(groups));
    for (const Row& row : rows) {
      std::vector<BlockId> blocks;
      for (int32_t b = 0; b < per_sequence_; ++b) {
        const bool shared = row.blocks_of >= 0 && b * runner_.info().block_size < row.from;
        const int32_t owner = shared ? row.blocks_of : row.sequence;
        blocks.push_back(BlockId{owner * per_sequence_ + b + 1});
      }
      const std::vector<std::span<const BlockId>> tables(groups, blocks);
      StepRow step_row = {.slot = SlotId{row.sequence + 1},
                          .num_tokens = std::max(1, static_cast<int32_t>(row.ids.size())),
                          .start_position = row.from,
                          .output_index = row.sample ? row.output_index : -1,
                          .logits = row.sample ? LogitsKind::kLast : LogitsKind::kNone};
      builder.AddRow(step_row, row.ids, tables);
    }
    builder.Finish(&input);
    ASSERT_TRUE(runner_.LaunchForward(input).ok());
    const absl::Status sampled = runner_.LaunchSample(masks_);
    ASSERT_TRUE(sampled.ok()) << std::string(sampled.message());
  }
  std::vector<TokenId> Collect() {
    const auto output = runner_.Collect();
    EXPECT_TRUE(output.ok()) << std::string(output.status().message());
    if (!output.ok()) return {};
    last_ = **output;
    return last_.tokens;
  }
  std::vector<TokenId> Run(const std::vector<Row>& rows) {
    Launch(rows);
    return Collect();
  }
  // ids[0, position] of one sequence in chunks; samples after the last.
  std::vector<TokenId> Prefill(int32_t sequence, std::span<const TokenId> ids, int32_t chunk) {
    std::vector<TokenId> tokens;
    const auto size = static_cast<int32_t>(ids.size());
    for (int32_t from = 0; from < size; from += chunk) {
      const int32_t to = std::min(from + chunk, size);
      tokens = Run({{.sequence = sequence,
                     .from = from,
                     .ids = {ids.begin() + from, ids.begin() + to},
                     .sample = to == size}});
    }
    return tokens;
  }
  void Init(int32_t sequence, const SamplingParams& params, std::span<const TokenId> prompt = {}) {
    runner_.InitSlot({.slot = SlotId{sequence + 1}, .sampling = &params, .prompt_ids = prompt});
  }
  const StepOutput& last() const { return last_; }
  void set_masks(std::vector<RowMask> masks) { masks_ = std::move(masks); }

 private:
  ModelRunner& runner_;
  const int32_t per_sequence_;
  uint64_t step_ = 100;
  StepOutput last_;
  std::vector<RowMask> masks_;
};

using Logits = std::map<int32_t, std::vector<float>>;  // of the last step, by sequence

std::unique_ptr<ModelRunner> MakeRunner(const ModelFiles& files, Logits* logits,
                                        CudaRunnerOptions options = {}) {
  options.kv_cache_bytes = 512 << 20;
  if (options.max_num_seqs == 256) options.max_num_seqs = 80;
  options.max_num_batched_tokens = 1024;
  options.chunk_times = {{64, 1000}};
  if (logits != nullptr) {
    options.logits_hook = [logits](SlotId slot, int32_t, std::span<const float> row) {
      (*logits)[Value(slot) - 1].assign(row.begin(), row.end());
    };
  }
  auto runner = CreateCudaRunner(files.spec, *files.weights, options);
  EXPECT_TRUE(runner.ok()) << std::string(runner.status().message());
  return runner.ok() ? *std::move(runner) : nullptr;
}

const SamplingParams kGreedy = {.temperature = 0};

class TinyModel : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_GPU();
    folder_ = DataFolder() + "/model/tiny/" + GetParam();
    auto files = OpenModelFiles(folder_, LoadFormat::kAuto);
    ASSERT_TRUE(files.ok()) << std::string(files.status().message());
    files_ = *std::move(files);
    golden_ = ReadGolden(folder_);
  }
  std::span<const TokenId> Ids(int32_t position) const {
    return std::span(golden_.ids).first(static_cast<size_t>(position) + 1);
  }
  void ExpectGolden(const Logits& logits, int32_t sequence, int32_t position, const char* what) {
    const auto it = logits.find(sequence);
    ASSERT_NE(it, logits.end()) << what;
    EXPECT_LT(RelativeError(it->second, golden_.logits[position]), kTolerance)
        << what << ", position " << position << ", sequence " << sequence;
  }

  std::string folder_;
  ModelFiles files_;
  Golden golden_;
};

TEST_P(TinyModel, PrefillWholeInChunksAndBehindAHit) {
  Logits logits;
  const auto runner = MakeRunner(files_, &logits);
  ASSERT_NE(runner, nullptr);
  Driver driver(*runner, 320);
  for (const int32_t position : kPositions) {
    for (const int32_t chunk : {512, 48, 16}) {
      driver.Init(0, kGreedy);
      driver.Prefill(0, Ids(position), chunk);
      ExpectGolden(logits, 0, position, "prefill");
    }
  }
  // Sequence 0 holds 301 tokens; sequence 1 takes its first 256 from there.
  driver.Init(1, kGreedy);
  driver.Run({{.sequence = 1,
               .from = 256,
               .ids = {golden_.ids.begin() + 256, golden_.ids.begin() + 301},
               .blocks_of = 0}});
  ExpectGolden(logits, 1, 300, "prefix hit");
}

TEST_P(TinyModel, DecodeAloneAndInCompany) {
  Logits logits;
  const auto runner = MakeRunner(files_, &logits);
  ASSERT_NE(runner, nullptr);
  Driver driver(*runner, 320);
  // Every kernel for linear layers, with and without padding to a graph's rows.
  for (const int32_t company : {1, 2, 7, 16, 17, 33, 70}) {
    for (int32_t s = 0; s < company; ++s) {
      driver.Init(s, kGreedy);
      driver.Prefill(s, Ids(s % 2 == 0 ? 299 : 16), 512);
    }
    std::vector<Driver::Row> rows;
    for (int32_t s = 0; s < company; ++s) {
      const int32_t position = s % 2 == 0 ? 300 : 17;
      rows.push_back({.sequence = s,
                      .from = position,
                      .ids = {golden_.ids[static_cast<size_t>(position)]},
                      .output_index = 1});
    }
    logits.clear();
    driver.Run(rows);
    for (int32_t s = 0; s < company; ++s) {
      ExpectGolden(logits, s, s % 2 == 0 ? 300 : 17, absl::StrFormat("of %d", company).c_str());
    }
  }
}

TEST_P(TinyModel, MixedStepOfDecodeAndPrefill) {
  Logits logits;
  const auto runner = MakeRunner(files_, &logits);
  ASSERT_NE(runner, nullptr);
  Driver driver(*runner, 320);
  for (int32_t s = 0; s < 4; ++s) driver.Init(s, kGreedy);
  driver.Prefill(1, Ids(299), 512);
  driver.Run({{.sequence = 2,
               .from = 0,
               .ids = {golden_.ids.begin(), golden_.ids.begin() + 10},
               .sample = false}});
  logits.clear();
  const auto tokens = driver.Run(
      {{.sequence = 0, .from = 0, .ids = {golden_.ids.begin(), golden_.ids.begin() + 18}},
       {.sequence = 1, .from = 300, .ids = {golden_.ids[300]}},
       {.sequence = 2, .from = 10, .ids = {golden_.ids.begin() + 10, golden_.ids.begin() + 18}},
       {.sequence = 3,
        .from = 0,
        .ids = {golden_.ids.begin(), golden_.ids.begin() + 50},
        .sample = false}});
  ASSERT_EQ(tokens.size(), 3u);
  ExpectGolden(logits, 0, 17, "mixed");
  ExpectGolden(logits, 1, 300, "mixed");
  ExpectGolden(logits, 2, 17, "mixed");
  for (int32_t s = 0; s < 3; ++s) {
    EXPECT_EQ(driver.last().rows[static_cast<size_t>(s)].slot, SlotId{s + 1});
  }
}

// Not llama_dynamic: its frequencies depend on the served length.
INSTANTIATE_TEST_SUITE_P(Families, TinyModel,
                         ::testing::Values("llama", "llama_bias", "llama_linear", "llama_llama3",
                                           "llama_longrope", "llama_yarn", "mistral_window",
                                           "qwen2", "qwen3", "smollm"),
                         [](const auto& family) { return family.param; });

class LlamaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_GPU();
    auto files = OpenModelFiles(DataFolder() + "/model/tiny/llama", LoadFormat::kAuto);
    ASSERT_TRUE(files.ok()) << std::string(files.status().message());
    files_ = *std::move(files);
    golden_ = ReadGolden(DataFolder() + "/model/tiny/llama");
  }
  ModelFiles files_;
  Golden golden_;
};

TEST_F(LlamaTest, StepsQueuedAheadGiveTheSameTokens) {
  for (const bool graphs : {true, false}) {
    const auto runner = MakeRunner(files_, nullptr, {.use_graphs = graphs});
    ASSERT_NE(runner, nullptr);
    Driver driver(*runner, 320);
    const std::span<const TokenId> prompt = std::span(golden_.ids).first(40);
    std::vector<std::vector<TokenId>> streams;
    for (const bool ahead : {false, true}) {
      driver.Init(0, kGreedy);
      driver.Init(1, {.temperature = 0.8f, .seed = 5});
      std::vector<TokenId> stream = driver.Prefill(0, prompt, 512);
      stream.push_back(driver.Prefill(1, prompt, 512)[0]);
      const auto take = [&] {
        for (const TokenId token : driver.Collect()) stream.push_back(token);
      };
      for (int32_t i = 0; i < 20; ++i) {
        driver.Launch({{.sequence = 0, .from = 40 + i, .output_index = 1 + i},
                       {.sequence = 1, .from = 40 + i, .output_index = 1 + i}});
        if (!ahead || i > 0) take();
      }
      if (ahead) take();
      ASSERT_EQ(stream.size(), 42u);
      streams.push_back(stream);
    }
    EXPECT_EQ(streams[0], streams[1]) << "graphs " << graphs;
    EXPECT_GT(std::set<TokenId>(streams[0].begin(), streams[0].end()).size(), 3u);
  }
}

TEST_F(LlamaTest, SamplingOptions) {
  Logits logits;
  const auto runner = MakeRunner(files_, &logits);
  ASSERT_NE(runner, nullptr);
  Driver driver(*runner, 320);
  const std::span<const TokenId> prompt = std::span(golden_.ids).first(18);
  const auto sample = [&](const SamplingParams& params) {
    driver.Init(0, params, prompt);
    return driver.Prefill(0, prompt, 512)[0];
  };
  const TokenId best = sample(kGreedy);
  const std::vector<float> raw = logits[0];
  EXPECT_EQ(std::max_element(raw.begin(), raw.end()) - raw.begin(), best);
  // The best is a stop id below min_tokens: the second best.
  SamplingParams params = kGreedy;
  params.eos_and_stop_ids = {best};
  params.min_tokens = 1;
  const TokenId second = sample(params);
  std::vector<float> without = raw;
  without[static_cast<size_t>(best)] = -INFINITY;
  EXPECT_EQ(std::max_element(without.begin(), without.end()) - without.begin(), second);
  params.min_tokens = 0;
  EXPECT_EQ(sample(params), best);
  params = kGreedy;
  params.allowed_token_ids = {7, 9};
  const TokenId allowed = sample(params);
  EXPECT_EQ(allowed, raw[7] >= raw[9] ? 7 : 9);
  params = kGreedy;
  params.logit_bias = {{11, 100.0f}};
  EXPECT_EQ(sample(params), 11);
  EXPECT_EQ(sample(kGreedy), best);  // the slot's next owner has no bias
  // A grammar's mask.
  std::vector<uint32_t> bits(5, 0);
  bits[42 / 32] |= 1u << (42 % 32);
  driver.set_masks({{.slot = SlotId{1}, .allowed = bits}});
  EXPECT_EQ(sample(kGreedy), 42);
  driver.set_masks({});
  // Penalties count the prompt when a sequence takes its slot.
  params = kGreedy;
  params.repetition_penalty = 1e6f;
  const TokenId unseen = sample(params);
  std::vector<float> changed = raw;
  for (const TokenId id : std::set<TokenId>(prompt.begin(), prompt.end())) {
    float& logit = changed[static_cast<size_t>(id)];
    logit = logit > 0 ? logit / 1e6f : logit * 1e6f;
  }
  EXPECT_EQ(std::max_element(changed.begin(), changed.end()) - changed.begin(), unseen);
  // Logprobs.
  params = kGreedy;
  params.top_logprobs = 3;
  EXPECT_EQ(sample(params), best);
  ASSERT_EQ(driver.last().logprobs.size(), 4u);
  double sum = 0;
  for (const float logit : raw) sum += std::exp(static_cast<double>(logit));
  EXPECT_EQ(driver.last().logprobs[1].token, best);
  EXPECT_EQ(driver.last().logprobs[2].token, second);
  EXPECT_EQ(driver.last().rows[0].sampled_rank, 1);
  EXPECT_NEAR(driver.last().logprobs[0].logprob, raw[static_cast<size_t>(best)] - std::log(sum),
              1e-4);
}

TEST_F(LlamaTest, RefusesWhatDoesNotFit) {
  CudaRunnerOptions options;
  options.gpu_memory_utilization = 0.01;
  options.max_num_batched_tokens = 65'000;
  options.kv_cache_bytes = int64_t{1} << 40;
  const auto runner = CreateCudaRunner(files_.spec, *files_.weights, options);
  ASSERT_FALSE(runner.ok());
  EXPECT_NE(std::string(runner.status().message()).find("does not fit"), std::string::npos)
      << std::string(runner.status().message());
  options = {.block_size = 8};
  EXPECT_EQ(CreateCudaRunner(files_.spec, *files_.weights, options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Random weights in the shapes of real models: the CPU's f32 arithmetic is the reference.
TEST(DummyModel, AgreesWithTheCpuRunner) {
  SKIP_WITHOUT_GPU();
  for (const char* name : {"smollm2-135m", "qwen3-0.6b"}) {
    const std::string config = DataFolder() + "/../../worker/model/configs/" + name + ".json";
    auto files = OpenModelFiles(config, LoadFormat::kDummy, 3);
    ASSERT_TRUE(files.ok()) << std::string(files.status().message());
    std::vector<TokenId> ids;
    for (int32_t i = 0; i < 70; ++i) ids.push_back((i * 7919 + 13) % files->spec.vocab_size);
    auto cpu = CpuRunner::Create(files->spec, *files->weights,
                                 {.kv_cache_bytes = 256 << 20,
                                  .max_num_seqs = 2,
                                  .max_num_batched_tokens = 128,
                                  .chunk_times = {{64, 1000}}});
    ASSERT_TRUE(cpu.ok()) << std::string(cpu.status().message());
    Logits reference;
    (*cpu)->set_logits_hook([&](SlotId slot, int32_t, std::span<const float> row) {
      reference[Value(slot) - 1].assign(row.begin(), row.end());
    });
    Driver cpu_driver(**cpu, 128);
    cpu_driver.Init(0, kGreedy);
    cpu_driver.Prefill(0, ids, 128);
    Logits logits;
    const auto runner = MakeRunner(*files, &logits);
    ASSERT_NE(runner, nullptr);
    Driver driver(*runner, 128);
    driver.Init(0, kGreedy);
    driver.Prefill(0, ids, 128);
    const double whole = RelativeError(logits[0], reference[0]);
    driver.Init(1, kGreedy);
    driver.Prefill(1, std::span(ids).first(69), 32);
    driver.Run({{.sequence = 1, .from = 69, .ids = {ids[69]}}});
    const double decoded = RelativeError(logits[1], reference[0]);
    std::printf("%s: relative error of logits %.4f, after a decode step %.4f\n", name, whole,
                decoded);
    EXPECT_LT(whole, 0.05) << name;
    EXPECT_LT(decoded, 0.05) << name;
  }
}

// Every position's logits of a sequence, prompt whole and then token by token.
std::vector<std::vector<float>> TeacherForced(Driver& driver, Logits& logits,
                                              const std::vector<TokenId>& ids, size_t prompt) {
  std::vector<std::vector<float>> rows;
  driver.Init(0, kGreedy);
  driver.Prefill(0, std::span(ids).first(prompt), 512);
  rows.push_back(logits[0]);
  for (size_t i = prompt; i < ids.size(); ++i) {
    driver.Run({{.sequence = 0, .from = static_cast<int32_t>(i), .ids = {ids[i]}}});
    rows.push_back(logits[0]);
  }
  return rows;
}

// The committed streams are the f32 reference's choices; bf16 chooses otherwise where the two best
// are close. transformers' own bf16 run (its body, logits in f32) does so in 19 of the 1280 places,
// at reference gaps of up to 0.221 (torch 2.15 on a CPU; with bf16 logits in 33). The bounds are
// half as many again, and the gap's likewise, for it is the largest of a few.
constexpr int kMostDifferent = 3 * 19 / 2 + 3;
constexpr double kLargestGap = 1.5 * 0.221;

TEST(SmolLm2, FollowsTheReferenceStreams) {
  SKIP_WITHOUT_GPU();
  const char* model = std::getenv("PENSTOCK_TEST_MODEL");
  if (model == nullptr) GTEST_SKIP() << "PENSTOCK_TEST_MODEL is not set";
  auto files = OpenModelFiles(model, LoadFormat::kAuto);
  ASSERT_TRUE(files.ok()) << std::string(files.status().message());
  std::ifstream file(DataFolder() + "/model/smollm2_streams.json");
  const auto json = Json::Parse(std::string(std::istreambuf_iterator<char>(file), {}));
  ASSERT_TRUE(json.ok()) << std::string(json.status().message());
  auto cpu = CpuRunner::Create(files->spec, *files->weights,
                               {.kv_cache_bytes = 256 << 20,
                                .max_num_seqs = 2,
                                .max_num_batched_tokens = 512,
                                .chunk_times = {{64, 1000}}});
  ASSERT_TRUE(cpu.ok()) << std::string(cpu.status().message());
  Logits cpu_logits;
  (*cpu)->set_logits_hook([&](SlotId slot, int32_t, std::span<const float> row) {
    cpu_logits[Value(slot) - 1].assign(row.begin(), row.end());
  });
  Logits logits;
  const auto runner = MakeRunner(*files, &logits);
  ASSERT_NE(runner, nullptr);
  int total = 0;
  int different = 0;
  double worst_gap = 0;
  for (const Json& entry : json->as_array()) {
    std::vector<TokenId> ids;
    const auto append = [&ids, &entry](const char* key) {
      for (const Json& id : entry.Find(key)->as_array()) {
        ids.push_back(static_cast<TokenId>(id.ToInt64().value_or(0)));
      }
    };
    append("prompt");
    const size_t prompt = ids.size();
    append("stream");
    ids.pop_back();
    Driver driver(*runner, 512);
    Driver cpu_driver(**cpu, 512);
    const auto ours = TeacherForced(driver, logits, ids, prompt);
    const auto reference = TeacherForced(cpu_driver, cpu_logits, ids, prompt);
    for (size_t i = 0; i < ours.size(); ++i) {
      const auto best = std::max_element(ours[i].begin(), ours[i].end()) - ours[i].begin();
      std::vector<float> sorted = reference[i];
      std::partial_sort(sorted.begin(), sorted.begin() + 1, sorted.end(), std::greater<>());
      const double gap = sorted[0] - reference[i][static_cast<size_t>(best)];
      ++total;
      if (gap <= 0) continue;
      ++different;
      worst_gap = std::max(worst_gap, gap);
    }
  }
  std::printf("SmolLM2: %d of %d argmax differ from f32, the largest reference gap %.4f\n",
              different, total, worst_gap);
  EXPECT_GT(total, 1000);
  EXPECT_LE(different, kMostDifferent);
  EXPECT_LT(worst_gap, kLargestGap);
}

}  // namespace
}  // namespace penstock
