#include "worker/model/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/model/model_fixtures.h"
#include "worker/model/model_config.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A Llama of these sizes, as published for models of that many parameters.
ModelSpec Llama(int layers, int hidden, int intermediate, int heads, int kv_heads, int vocab) {
  return SpecFromConfigJson(
             absl::StrFormat(R"({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": %d,
               "hidden_size": %d, "intermediate_size": %d, "num_attention_heads": %d,
               "num_key_value_heads": %d, "vocab_size": %d, "max_position_embeddings": 32768})",
                             layers, hidden, intermediate, heads, kv_heads, vocab),
             "test")
      .value();
}

const PlanRow& Row(const std::vector<PlanRow>& rows, int cards, int bits) {
  for (const PlanRow& row : rows) {
    if (row.cards == cards && row.weight_bits == bits) return row;
  }
  ADD_FAILURE() << cards << " cards, " << bits << " bits";
  return rows[0];
}

// The rule of thumb: billions of parameters, card, what users expect to be left for the cache.
struct Rule {
  const char* name;
  ModelSpec spec;
  double billions;
  const char* gpu;
  int cards;
  int bits;
  double cache_low_gb;
  double cache_high_gb;
};

TEST(Plan, AgreesWithTheRuleOfThumb) {
  const Rule rules[] = {
      {"20B on L40S", Llama(60, 5120, 13824, 40, 40, 103168), 20, "l40s", 1, 16, 6, 8},
      {"34B on L40S", Llama(60, 7168, 20480, 56, 8, 64000), 34, "l40s", 1, 8, 10, 10},
      {"7B on RTX 4000 Ada", Llama(32, 4096, 11008, 32, 32, 32000), 7, "rtx4000ada", 1, 16, 5, 5},
      {"40B on two L40S", Llama(60, 8192, 20480, 64, 8, 32000), 40, "l40s", 2, 16, 12, 12},
  };
  for (const Rule& rule : rules) {
    const double billions = static_cast<double>(CountParameters(rule.spec)) / 1e9;
    EXPECT_NEAR(billions, rule.billions, rule.billions * 0.05) << rule.name;
    PlanOptions options{.gpu = FindGpu(rule.gpu).value(), .utilization = 1.0};
    const auto rows = MakePlan(rule.spec, options);
    const PlanRow& row = Row(rows, rule.cards, rule.bits);
    const double cache = static_cast<double>(row.cache_bytes) / 1e9;
    EXPECT_TRUE(row.fits) << rule.name;
    EXPECT_GE(cache, rule.cache_low_gb - 3) << rule.name;
    EXPECT_LE(cache, rule.cache_high_gb + 3) << rule.name;
    // About 2 GB a billion at 16 bits, 1 at 8.
    const double per_billion = static_cast<double>(row.weight_bytes) / 1e9 / billions;
    EXPECT_NEAR(per_billion, rule.bits / 8.0, 0.1) << rule.name;
  }
}

TEST(Plan, TooLargeModelsDoNotFit) {
  PlanOptions options{.gpu = FindGpu("rtx4090").value()};
  const ModelSpec qwen = SpecFromConfigFile(testing::ConfigsFolder() + "/qwen3-32b.json").value();
  const auto rows = MakePlan(qwen, options);
  EXPECT_FALSE(Row(rows, 1, 16).fits);
  EXPECT_LT(Row(rows, 1, 16).cache_bytes, 0);
  EXPECT_FALSE(Row(rows, 1, 8).fits);
  EXPECT_TRUE(Row(rows, 4, 16).fits);
  options.cards = {1};
  EXPECT_THAT(PlanText(qwen, options, MakePlan(qwen, options)),
              AllOf(HasSubstr("32.76 billion parameters"), HasSubstr("does not fit:"),
                    HasSubstr("Nothing here fits: take a larger card or more of them")));
}

TEST(Plan, CountsRequestsAndCopiesOfKvHeads) {
  const ModelSpec llama =
      SpecFromConfigFile(testing::ConfigsFolder() + "/llama-3.1-8b.json").value();
  PlanOptions options{.gpu = FindGpu("h200").value(), .cards = {1, 2, 3, 8, 16}};
  const auto rows = MakePlan(llama, options);
  EXPECT_EQ(rows.size(), 8u);  // three cards do not divide the model
  const PlanRow& one = Row(rows, 1, 16);
  EXPECT_EQ(one.weight_bytes, int64_t{2} * 8030261248);
  EXPECT_EQ(one.kv_token_bytes, 131072);
  ASSERT_EQ(one.requests.size(), 4u);
  EXPECT_NEAR(one.requests[0], static_cast<double>(one.cache_bytes) / (131072.0 * 2048), 1e-6);
  EXPECT_NEAR(one.requests[0] / one.requests[3], 64.0, 1e-6);
  EXPECT_EQ(Row(rows, 8, 16).kv_token_bytes, 131072);
  EXPECT_EQ(Row(rows, 16, 16).kv_token_bytes, 2 * 131072);
  EXPECT_THAT(PlanText(llama, options, rows),
              AllOf(HasSubstr("NVIDIA H200"), HasSubstr("8k"), HasSubstr("128k")));
}

TEST(Plan, LengthsBeyondTheModelAreNoColumns) {
  const ModelSpec small =
      SpecFromConfigFile(testing::ConfigsFolder() + "/smollm2-135m.json").value();
  PlanOptions options{.gpu = FindGpu("l4").value(), .cards = {1}};
  EXPECT_EQ(MakePlan(small, options)[0].requests.size(), 2u);
}

TEST(Plan, UnknownCards) {
  EXPECT_THAT(std::string(FindGpu("tpu").status().message()),
              HasSubstr("--gpu 'tpu' is not known (known: l4, a10,"));
}

}  // namespace
}  // namespace penstock
