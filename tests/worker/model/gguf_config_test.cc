#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "common/formats/gguf.h"
#include "tests/worker/model/model_fixtures.h"
#include "worker/model/model_config.h"
#include "worker/model/rope.h"

namespace penstock {
namespace {

using ::testing::Each;
using testing::GgufBuilder;
using ::testing::HasSubstr;

struct Change {
  const char* drop = "";
  std::function<void(GgufBuilder&)> add = [](GgufBuilder&) {};
};

absl::StatusOr<ModelSpec> Spec(const Change& change = {}, const std::string& arch = "llama") {
  GgufBuilder gguf;
  const std::string drop = change.drop;
  const auto uint = [&](const std::string& key, uint32_t value) {
    if (key != drop) gguf.Uint(arch + "." + key, value);
  };
  if (drop != "general.architecture") gguf.String("general.architecture", arch);
  uint("embedding_length", 64);
  uint("feed_forward_length", 96);
  uint("block_count", 2);
  uint("attention.head_count", 4);
  uint("attention.head_count_kv", 2);
  uint("context_length", 512);
  if (drop != "tokens") gguf.Strings("tokenizer.ggml.tokens", {"a", "b", "c"});
  gguf.Float(arch + ".attention.layer_norm_rms_epsilon", 1e-5f);
  change.add(gguf);
  const auto file = GgufFile::FromMemory("m.gguf", gguf.Bytes());
  if (!file.ok()) return file.status();
  return SpecFromGguf(**file);
}

std::string Message(const Change& change, const std::string& arch = "llama") {
  return std::string(Spec(change, arch).status().message());
}

TEST(GgufConfig, ReadsSizes) {
  const auto spec = Spec();
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->architecture, "LlamaForCausalLM");
  EXPECT_EQ(spec->hidden_size, 64);
  EXPECT_EQ(spec->head_dim, 16);
  EXPECT_EQ(spec->num_kv_heads, 2);
  EXPECT_EQ(spec->vocab_size, 3);
  EXPECT_EQ(spec->max_position, 512);
  EXPECT_FLOAT_EQ(static_cast<float>(spec->rms_norm_eps), 1e-5f);
  EXPECT_TRUE(spec->tie_word_embeddings);
  EXPECT_FALSE(spec->qkv_bias);
  EXPECT_EQ(spec->rope.kind, RopeSpec::Kind::kDefault);
  EXPECT_THAT(spec->layer_window, Each(0));
}

TEST(GgufConfig, Qwen3HeadSizeAndNorms) {
  const auto spec = Spec({.add =
                              [](GgufBuilder& gguf) {
                                gguf.Uint("qwen3.attention.key_length", 32);
                                gguf.Uint("qwen3.attention.value_length", 32);
                                gguf.Float("qwen3.rope.freq_base", 1e6f);
                              }},
                         "qwen3");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->architecture, "Qwen3ForCausalLM");
  EXPECT_EQ(spec->head_dim, 32);
  EXPECT_EQ(spec->rope.rotary_dim, 32);
  EXPECT_EQ(spec->rope.theta, 1e6);
  EXPECT_TRUE(spec->qk_norm);
}

TEST(GgufConfig, RopeFactorTensorIsLlama3Scaling) {
  // What llama.cpp's converter writes for llama3 scaling: the divisor of each frequency.
  const RopeSpec llama3{.kind = RopeSpec::Kind::kLlama3,
                        .theta = 500000.0,
                        .rotary_dim = 16,
                        .factor = 8.0,
                        .original_max_position = 128};
  const RopeTable wanted = ComputeRope(llama3, 512, 512);
  testing::F32Tensor factors{"rope_freqs.weight", {8}, {}};
  for (int i = 0; i < 8; ++i) {
    factors.values.push_back(
        static_cast<float>(std::pow(500000.0, -i / 8.0) / wanted.inv_freq[static_cast<size_t>(i)]));
  }
  const auto spec = Spec({.add = [&](GgufBuilder& gguf) {
    gguf.Float("llama.rope.freq_base", 500000.0f);
    gguf.Tensor(factors);
  }});
  ASSERT_TRUE(spec.ok()) << spec.status();
  const RopeTable table = ComputeRope(spec->rope, spec->max_position, 512);
  EXPECT_EQ(table.attention_factor, 1.0f);
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(table.inv_freq[i] / wanted.inv_freq[i], 1.0, 1e-6);
}

TEST(GgufConfig, ScalingKeys) {
  const auto linear = Spec({.add = [](GgufBuilder& gguf) {
    gguf.String("llama.rope.scaling.type", "linear");
    gguf.Float("llama.rope.scaling.factor", 4.0f);
  }});
  EXPECT_EQ(linear->rope.kind, RopeSpec::Kind::kLinear);
  EXPECT_EQ(linear->rope.factor, 4.0);
  const auto yarn = Spec({.add = [](GgufBuilder& gguf) {
    gguf.String("llama.rope.scaling.type", "yarn");
    gguf.Float("llama.rope.scaling.factor", 4.0f);
    gguf.Uint("llama.rope.scaling.original_context_length", 128);
  }});
  EXPECT_EQ(yarn->rope.kind, RopeSpec::Kind::kYarn);
  EXPECT_EQ(yarn->rope.original_max_position, 128);
  EXPECT_EQ(yarn->rope.attention_factor, 0.0);
  const auto old =
      Spec({.add = [](GgufBuilder& gguf) { gguf.Float("llama.rope.scale_linear", 2.0f); }});
  EXPECT_EQ(old->rope.kind, RopeSpec::Kind::kLinear);
  EXPECT_EQ(old->rope.factor, 2.0);
}

TEST(GgufConfig, ListsOfEqualNumbersAndWindows) {
  const auto spec = Spec({.drop = "attention.head_count_kv", .add = [](GgufBuilder& gguf) {
                            gguf.Uints("llama.attention.head_count_kv", {2, 2});
                            gguf.Uint("llama.attention.sliding_window", 100);
                          }});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->num_kv_heads, 2);
  EXPECT_THAT(spec->layer_window, Each(100));
}

TEST(GgufConfig, Refusals) {
  EXPECT_THAT(Message({}, "gemma3"),
              HasSubstr("m.gguf: general.architecture is 'gemma3', which is not supported "
                        "(supported: llama, qwen2, qwen3)"));
  EXPECT_THAT(Message({.drop = "general.architecture"}),
              HasSubstr("general.architecture is missing"));
  EXPECT_THAT(Message({.drop = "block_count"}), HasSubstr("llama.block_count is missing"));
  EXPECT_THAT(Message({.drop = "tokens"}), HasSubstr("llama.vocab_size is missing"));
  const auto with = [](std::function<void(GgufBuilder&)> add, const char* drop = "") {
    return Message({.drop = drop, .add = std::move(add)});
  };
  EXPECT_THAT(with([](auto& g) { g.Uint("llama.block_count", 0); }, "block_count"),
              HasSubstr("llama.block_count is 0, expected a positive 32-bit number"));
  EXPECT_THAT(with([](auto& g) { g.String("llama.block_count", "2"); }, "block_count"),
              HasSubstr("'llama.block_count' is not an integer"));
  EXPECT_THAT(with([](auto& g) { g.Uint("llama.block_count", 9000); }, "block_count"),
              HasSubstr("9000"));
  EXPECT_THAT(with(
                  [](auto& g) {
                    g.Uints("llama.attention.head_count_kv", {2, 1});
                  },
                  "attention.head_count_kv"),
              HasSubstr("differs between layers"));
  EXPECT_THAT(with([](auto& g) { g.Uint("llama.expert_count", 8); }),
              HasSubstr("mixture-of-experts models are not supported"));
  EXPECT_THAT(with([](auto& g) { g.Uint("split.count", 3); }),
              HasSubstr("one of 3 parts of a split GGUF"));
  EXPECT_THAT(with([](auto& g) { g.String("llama.rope.scaling.type", "odd"); }),
              HasSubstr("llama.rope.scaling.type is 'odd', which is not supported"));
  EXPECT_THAT(with([](auto& g) { g.Uint("llama.attention.value_length", 8); }),
              HasSubstr("different sizes are not supported"));
  EXPECT_THAT(with([](auto& g) { g.Uint("llama.rope.dimension_count", 18); }),
              HasSubstr("rope.dimension_count is 18, expected an even number up to the head size"));
  EXPECT_THAT(with([](auto& g) {
                g.Tensor({"rope_freqs.weight", {4}, {1, 1, 1, 1}});
              }),
              HasSubstr("tensor 'rope_freqs.weight' is F32 [4], expected F32 [8]"));
  EXPECT_THAT(with([](auto& g) {
                g.Tensor({"rope_freqs.weight", {8}, {1, 1, 0, 1, 1, 1, 1, 1}});
              }),
              HasSubstr("tensor 'rope_freqs.weight' holds 0"));
  EXPECT_THAT(
      with([](auto& g) { g.Uint("llama.attention.head_count_kv", 3); }, "attention.head_count_kv"),
      HasSubstr("num_attention_heads 4 is no multiple of num_key_value_heads 3"));
}

}  // namespace
}  // namespace penstock
