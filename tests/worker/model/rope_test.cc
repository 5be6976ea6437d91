#include "worker/model/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/json/json.h"
#include "tests/worker/model/model_fixtures.h"
#include "worker/model/model_config.h"

namespace penstock {
namespace {

// Goldens: tests/tools/make_rope_goldens.py. transformers computes in f32; two of its roundings
// and the power function's are allowed for.
TEST(Rope, EqualsTransformers) {
  const std::string text =
      testing::ReadAll(std::string(std::getenv("PENSTOCK_TEST_DATA")) + "/model/rope.json");
  const Json goldens = Json::Parse(text).value();
  int compared = 0;
  for (const Json& golden : goldens.Find("cases")->as_array()) {
    const std::string& name = golden.Find("name")->as_string();
    const auto spec = SpecFromConfigJson(golden.Find("config")->Dump(), name);
    ASSERT_TRUE(spec.ok()) << spec.status();
    const RopeTable table =
        ComputeRope(spec->rope, spec->max_position, *golden.Find("served_len")->ToInt64());
    const auto& expected = golden.Find("inv_freq")->as_array();
    ASSERT_EQ(table.inv_freq.size(), expected.size()) << name;
    for (size_t i = 0; i < expected.size(); ++i) {
      const double want = *expected[i].ToDouble();
      EXPECT_NEAR(table.inv_freq[i], want, std::abs(want) * 2e-6) << name << " pair " << i;
    }
    EXPECT_FLOAT_EQ(table.attention_factor,
                    static_cast<float>(*golden.Find("attention_factor")->ToDouble()))
        << name;
    ++compared;
  }
  EXPECT_EQ(compared, 21);
}

TEST(Rope, MaxPosition) {
  RopeSpec rope{.kind = RopeSpec::Kind::kYarn, .factor = 4.0, .original_max_position = 32768};
  EXPECT_EQ(RopeMaxPosition(rope, 32768), 131072);
  EXPECT_EQ(RopeMaxPosition(rope, 262144), 262144);
  rope.kind = RopeSpec::Kind::kLlama3;
  EXPECT_EQ(RopeMaxPosition(rope, 32768), 32768);
}

}  // namespace
}  // namespace penstock
