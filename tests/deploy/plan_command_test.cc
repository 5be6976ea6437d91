// "penstock plan" through the real binary: the table that users read, and what it refuses.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <sstream>
#include <vector>

#include "common/base/exit_codes.h"
#include "tests/common/formats/bytes.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Result {
  int code = -1;
  std::string output;  // stdout and stderr
};

Result RunPlan(const std::string& arguments) {
  const std::string command = std::string(PENSTOCK_BINARY) + " plan " + arguments + " 2>&1";
  Result result;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 4096> buffer;
  while (const size_t size = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    result.output.append(buffer.data(), size);
  }
  const int status = pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

// The columns after "cards" and "bits": weights, runtime and cache in GB, KV tokens, requests.
std::vector<std::string> Columns(const std::string& output, const std::string& cards,
                                 const std::string& bits) {
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::vector<std::string> columns;
    for (std::string word; words >> word;) columns.push_back(word);
    if (columns.size() > 3 && columns[0] == cards && columns[1] == bits && columns[2] == "bit") {
      return {columns.begin() + 3, columns.end()};
    }
  }
  return {};
}

// What users know of their cards: billions of parameters at so many bits, and the GB left for the
// cache at full memory.
struct Rule {
  const char* name;
  std::array<int, 6> llama;  // layers, hidden, intermediate, heads, KV heads, vocabulary
  const char* gpu;
  const char* cards;
  const char* bits;
  double weights_gb;
  double cache_low_gb, cache_high_gb;
};

class PlanRules : public ::testing::TestWithParam<Rule> {};

TEST_P(PlanRules, AgreeWithinThreeGigabytes) {
  const Rule& rule = GetParam();
  const std::array<int, 6>& s = rule.llama;
  std::ostringstream config;
  config << R"({"architectures":["LlamaForCausalLM"],"num_hidden_layers":)" << s[0]
         << R"(,"hidden_size":)" << s[1] << R"(,"intermediate_size":)" << s[2]
         << R"(,"num_attention_heads":)" << s[3] << R"(,"num_key_value_heads":)" << s[4]
         << R"(,"vocab_size":)" << s[5] << R"(,"max_position_embeddings":32768})";
  TempFolder folder;
  const std::string path = folder.Write("config.json", config.str());
  const Result result = RunPlan(path + " --gpu " + rule.gpu + " --gpu-memory-utilization 1");
  ASSERT_EQ(result.code, kExitOk) << result.output;
  const std::vector<std::string> columns = Columns(result.output, rule.cards, rule.bits);
  ASSERT_GE(columns.size(), 5u) << result.output;  // it fits: tokens and requests are there
  EXPECT_NEAR(std::stod(columns[0]), rule.weights_gb, rule.weights_gb * 0.1);
  EXPECT_GE(std::stod(columns[2]), rule.cache_low_gb - 3);
  EXPECT_LE(std::stod(columns[2]), rule.cache_high_gb + 3);
}

INSTANTIATE_TEST_SUITE_P(
    Cards, PlanRules,
    ::testing::Values(
        Rule{"B20OnL40s", {60, 5120, 13824, 40, 40, 103168}, "l40s", "1", "16", 40, 6, 8},
        Rule{"B34OnL40s", {60, 7168, 20480, 56, 8, 64000}, "l40s", "1", "8", 34, 10, 10},
        Rule{"B7OnRtx4000Ada", {32, 4096, 11008, 32, 32, 32000}, "rtx4000ada", "1", "16", 14, 5, 5},
        Rule{"B40OnTwoL40s", {60, 8192, 20480, 64, 8, 32000}, "l40s", "2", "16", 80, 12, 12}),
    [](const auto& test) { return std::string(test.param.name); });

std::string Config(const std::string& name) {
  return std::string(PENSTOCK_CONFIGS) + "/" + name + ".json";
}

TEST(PlanCommand, PrintsTheTable) {
  const Result result = RunPlan(Config("llama-3.1-8b") + " --gpu h200");
  EXPECT_EQ(result.code, kExitOk);
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("8.03 billion parameters, up to 131,072 tokens"),
                    HasSubstr("NVIDIA H200, 150.8 GB, 90% of it used; KV 131,072 bytes a token")));
  for (const char* cards : {"1", "2", "4", "8"}) {
    for (const char* bits : {"16", "8"}) {
      EXPECT_EQ(Columns(result.output, cards, bits).size(), 8u) << cards << " " << bits;
    }
  }
}

TEST(PlanCommand, SaysWhatIsMissing) {
  // One number for the memory, as a separate word and joined: the same.
  const Result result = RunPlan(Config("qwen3-32b") + " --memory-gb 24");
  EXPECT_EQ(result.code, kExitOk);
  EXPECT_EQ(RunPlan("--memory-gb=24 " + Config("qwen3-32b")).output, result.output);
  EXPECT_THAT(result.output, HasSubstr("does not fit: 46.3 GB short"));
  EXPECT_THAT(RunPlan(Config("qwen3-32b") + " --memory-gb 2").output,
              HasSubstr("Nothing here fits: take a larger card"));
}

TEST(PlanCommand, RefusesWithARemedy) {
  const struct {
    std::string arguments;
    int code;
    const char* message;
  } cases[] = {
      {"", kExitUsage, "penstock plan MODEL"},
      {Config("llama-3.1-8b") + " --gpu tpu", kExitUsage, "--gpu 'tpu' is not known (known: l4,"},
      {Config("llama-3.1-8b") + " --gpu", kExitUsage, "--gpu needs a value"},
      {Config("llama-3.1-8b") + " --memory-gb -3", kExitUsage, "--memory-gb is '-3', expected"},
      {Config("llama-3.1-8b") + " --memory-gb nan", kExitUsage, "--memory-gb is 'nan', expected"},
      {Config("llama-3.1-8b") + " --gpu-memory-utilization 1.5", kExitUsage, "up to 1"},
      {Config("llama-3.1-8b") + " --bits 4", kExitUsage, "unknown flag --bits"},
      {"a.json b.json", kExitUsage, "two models: a.json and b.json"},
      {"/nowhere/model.gguf", kExitModel, "/nowhere/model.gguf"},
  };
  for (const auto& c : cases) {
    const Result result = RunPlan(c.arguments);
    EXPECT_EQ(result.code, c.code) << c.arguments << ": " << result.output;
    EXPECT_THAT(result.output, HasSubstr(c.message)) << c.arguments;
  }
}

TEST(PlanCommand, HelpNamesEveryFlag) {
  const Result result = RunPlan("--help");
  EXPECT_EQ(result.code, kExitOk);
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("--gpu NAME"), HasSubstr("--memory-gb N"),
                    HasSubstr("--gpu-memory-utilization F"), HasSubstr("--revision REV")));
}

}  // namespace
}  // namespace penstock
