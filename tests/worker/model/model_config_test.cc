#include "worker/model/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/model/model_fixtures.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using testing::ConfigsFolder;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ReadAll;
using testing::Replaced;

struct KnownModel {
  const char* file;
  const char* architecture;
  int64_t parameters;    // as published (tied heads counted once)
  int64_t kv_per_token;  // bf16
  int32_t head_dim;
  bool tied;
};

class KnownModels : public ::testing::TestWithParam<KnownModel> {};

TEST_P(KnownModels, HasThePublishedSize) {
  const KnownModel& known = GetParam();
  const auto spec = SpecFromConfigFile(ConfigsFolder() + "/" + known.file + ".json");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->architecture, known.architecture);
  EXPECT_EQ(CountParameters(*spec), known.parameters);
  EXPECT_EQ(KvBytesPerToken(*spec, 2), known.kv_per_token);
  EXPECT_EQ(spec->head_dim, known.head_dim);
  EXPECT_EQ(spec->rope.rotary_dim, known.head_dim);
  EXPECT_EQ(spec->tie_word_embeddings, known.tied);
  EXPECT_EQ(spec->weights_dtype, "bfloat16");
}

INSTANTIATE_TEST_SUITE_P(
    Configs, KnownModels,
    ::testing::Values(
        KnownModel{"llama-3.1-8b", "LlamaForCausalLM", 8030261248, 131072, 128, false},
        KnownModel{"llama-3.2-1b", "LlamaForCausalLM", 1235814400, 32768, 64, true},
        KnownModel{"qwen2.5-14b", "Qwen2ForCausalLM", 14770033664, 196608, 128, false},
        KnownModel{"qwen3-32b", "Qwen3ForCausalLM", 32762123264, 262144, 128, false},
        KnownModel{"qwen3-0.6b", "Qwen3ForCausalLM", 596049920, 114688, 128, true},
        KnownModel{"mistral-7b-v0.1", "MistralForCausalLM", 7241732096, 131072, 128, false},
        KnownModel{"mistral-7b-v0.3", "MistralForCausalLM", 7248023552, 131072, 128, false},
        KnownModel{"smollm2-135m", "LlamaForCausalLM", 134515008, 23040, 64, true}),
    [](const auto& param) {
      std::string name = param.param.file;
      std::replace_if(
          name.begin(), name.end(), [](char c) { return !isalnum(c); }, '_');
      return name;
    });

ModelSpec Known(const std::string& file) {
  return SpecFromConfigFile(ConfigsFolder() + "/" + file + ".json").value();
}

TEST(ModelConfig, FamiliesDiffer) {
  const ModelSpec qwen2 = Known("qwen2.5-14b");
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.o_bias);
  EXPECT_FALSE(qwen2.qk_norm);
  const ModelSpec qwen3 = Known("qwen3-0.6b");
  EXPECT_FALSE(qwen3.qkv_bias);
  EXPECT_TRUE(qwen3.qk_norm);
  const ModelSpec llama = Known("llama-3.1-8b");
  EXPECT_EQ(llama.rope.kind, RopeSpec::Kind::kLlama3);
  EXPECT_EQ(llama.rope.original_max_position, 8192);
  EXPECT_EQ(llama.max_position, 131072);
}

TEST(ModelConfig, MistralWindows) {
  EXPECT_THAT(Known("mistral-7b-v0.1").layer_window, Each(4096));
  EXPECT_THAT(Known("mistral-7b-v0.3").layer_window, Each(0));
  const std::string text = ReadAll(ConfigsFolder() + "/mistral-7b-v0.1.json");
  // transformers' class default.
  const auto absent = SpecFromConfigJson(Replaced(text, "\"sliding_window\"", "\"unused\""), "c");
  EXPECT_THAT(absent->layer_window, Each(4096));
}

// A Qwen of 4 layers.
std::string Qwen(std::string_view more) {
  return absl::StrFormat(R"({"architectures": ["Qwen2ForCausalLM"], "vocab_size": 100,
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512%s})",
                         more);
}

TEST(ModelConfig, QwenWindowsPerLayer) {
  const auto windows = [](std::string_view more) {
    return SpecFromConfigJson(Qwen(more), "config.json")->layer_window;
  };
  EXPECT_THAT(windows(R"(, "sliding_window": 32, "max_window_layers": 2)"), Each(0));
  EXPECT_THAT(windows(R"(, "sliding_window": 32, "max_window_layers": 2,
                        "use_sliding_window": true)"),
              ElementsAre(0, 0, 32, 32));
  EXPECT_THAT(windows(R"(, "sliding_window": 32, "max_window_layers": 0,
                        "use_sliding_window": true)"),
              Each(32));
  EXPECT_THAT(windows(R"(, "use_sliding_window": true, "max_window_layers": 3)"),
              ElementsAre(0, 0, 0, 4096));
  EXPECT_THAT(windows(R"(, "use_sliding_window": true, "sliding_window": null)"), Each(0));
  EXPECT_THAT(windows(R"(, "sliding_window": 32, "use_sliding_window": true, "layer_types":
    ["sliding_attention", "full_attention", "sliding_attention", "full_attention"])"),
              ElementsAre(32, 0, 32, 0));
}

TEST(ModelConfig, BiasesAndDefaults) {
  const std::string text = Replaced(Qwen(R"(, "attention_bias": true, "mlp_bias": true)"),
                                    "Qwen2ForCausalLM", "LlamaForCausalLM");
  const auto spec = SpecFromConfigJson(text, "c");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->qkv_bias && spec->o_bias && spec->mlp_bias);
  EXPECT_EQ(spec->head_dim, 16);
  EXPECT_EQ(spec->rms_norm_eps, 1e-6);
  EXPECT_EQ(spec->rope.theta, 10000.0);
  EXPECT_EQ(spec->activation, Activation::kSilu);

  const auto no_kv = SpecFromConfigJson(Replaced(text, "num_key_value_heads", "unused"), "c");
  EXPECT_EQ(no_kv->num_kv_heads, 4);
  const auto typed = SpecFromConfigJson(
      Replaced(text, R"("architectures": ["LlamaForCausalLM"])", R"("model_type": "llama")"), "c");
  EXPECT_EQ(typed->architecture, "LlamaForCausalLM");
  const auto qwen3 =
      SpecFromConfigJson(Replaced(Qwen(""), "Qwen2ForCausalLM", "Qwen3ForCausalLM"), "c");
  EXPECT_EQ(qwen3->head_dim, 128);
  EXPECT_TRUE(qwen3->qk_norm);
}

TEST(ModelConfig, ActivationNames) {
  const auto of = [](std::string_view name) {
    return SpecFromConfigJson(Qwen(absl::StrFormat(R"(, "hidden_act": "%s")", name)), "c");
  };
  EXPECT_EQ(of("silu")->activation, Activation::kSilu);
  EXPECT_EQ(of("gelu")->activation, Activation::kGelu);
  EXPECT_EQ(of("gelu_pytorch_tanh")->activation, Activation::kGeluTanh);
  EXPECT_EQ(of("relu").status().code(), absl::StatusCode::kUnimplemented);
}

struct BadConfig {
  const char* name;
  const char* more;  // appended: the last of two equal keys wins
  const char* message;
};

class BadConfigs : public ::testing::TestWithParam<BadConfig> {};

TEST_P(BadConfigs, AreRefusedByName) {
  const auto spec = SpecFromConfigJson(Qwen(GetParam().more), "m/config.json");
  ASSERT_FALSE(spec.ok());
  EXPECT_THAT(std::string(spec.status().message()),
              AllOf(HasSubstr("m/config.json"), HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Configs, BadConfigs,
    ::testing::Values(
        BadConfig{"Architecture", R"(, "architectures": ["GemmaForCausalLM"])",
                  "architectures is 'GemmaForCausalLM', which is not supported (supported: "
                  "LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)"},
        BadConfig{"ArchitecturesType", R"(, "architectures": "x")", "architectures is string"},
        BadConfig{"NoArchitecture", R"(, "architectures": null)",
                  "neither architectures nor model_type"},
        BadConfig{"Quantized", R"(, "quantization_config": {"quant_method": "gptq"})",
                  "quantization_config has quant_method \"gptq\", which is not supported"},
        BadConfig{"Missing", R"(, "hidden_size": null)", "hidden_size is missing"},
        BadConfig{"Zero", R"(, "num_hidden_layers": 0)",
                  "num_hidden_layers is 0, expected a positive integer"},
        BadConfig{"Negative", R"(, "vocab_size": -5)", "vocab_size is -5"},
        BadConfig{"Float", R"(, "hidden_size": 64.5)", "hidden_size is 64.5"},
        BadConfig{"Huge", R"(, "vocab_size": 99999999999999999999)",
                  "vocab_size is 99999999999999999999"},
        BadConfig{"Large", R"(, "intermediate_size": 2000000000)",
                  "intermediate_size is 2000000000, expected 1 to 1048576"},
        BadConfig{"ManyLayers", R"(, "num_hidden_layers": 2000000000)",
                  "num_hidden_layers is 2000000000, expected 1 to 4096"},
        BadConfig{"KvHeads", R"(, "num_key_value_heads": 3)",
                  "num_attention_heads 4 is no multiple of num_key_value_heads 3"},
        BadConfig{"HeadDim", R"(, "num_attention_heads": 5, "num_key_value_heads": 5)",
                  "hidden_size 64 is no multiple of num_attention_heads 5"},
        BadConfig{"OddHeadDim", R"(, "head_dim": 15)", "15"},
        BadConfig{"Eps", R"(, "rms_norm_eps": -1)", "rms_norm_eps is -1"},
        BadConfig{"Tied", R"(, "tie_word_embeddings": "yes")", "tie_word_embeddings is \"yes\""},
        BadConfig{"Act", R"(, "hidden_act": "relu2")", "hidden_act is 'relu2', which is not"},
        BadConfig{"LayerTypesCount", R"(, "layer_types": ["full_attention"])",
                  "layer_types: expected a list of 4 entries"},
        BadConfig{"LayerType", R"(, "layer_types": ["full_attention", "x", "x", "x"])",
                  "layer_types[1] is 'x', which is not supported"},
        BadConfig{"NoWindow",
                  R"(, "layer_types": ["sliding_attention", "full_attention", "full_attention",
                     "full_attention"])",
                  "layer_types[0] is sliding_attention, but no sliding_window is in use"},
        BadConfig{"RopeType", R"(, "rope_scaling": {"type": "banana", "factor": 2})",
                  "rope_scaling.type is 'banana', which is not supported (supported: default, "
                  "linear, dynamic, llama3, yarn, longrope)"},
        BadConfig{"Mrope", R"(, "rope_parameters": {"rope_type": "mrope"})",
                  "rope_parameters.rope_type is 'mrope'"},
        BadConfig{"RopeNoType", R"(, "rope_scaling": {"factor": 2})",
                  "rope_scaling.rope_type is missing beside factor"},
        BadConfig{"RopeObject", R"(, "rope_scaling": 4)", "rope_scaling is integer"},
        BadConfig{"RopeFactor", R"(, "rope_scaling": {"type": "linear"})",
                  "rope_scaling.factor is missing"},
        BadConfig{"RopeFactorSmall", R"(, "rope_scaling": {"type": "yarn", "factor": 0.5})",
                  "rope_scaling.factor is 0.5, expected 1 or more"},
        BadConfig{"RopeFactorNegative", R"(, "rope_scaling": {"type": "dynamic", "factor": -2})",
                  "rope_scaling.factor is -2, expected a number above 0"},
        BadConfig{"RopeLlama3", R"(, "rope_scaling": {"type": "llama3", "factor": 8,
                     "low_freq_factor": 4, "high_freq_factor": 4})",
                  "rope_scaling.high_freq_factor is 4, expected more than low_freq_factor 4"},
        BadConfig{"RopeLongCount", R"(, "rope_scaling": {"type": "longrope",
                     "short_factor": [1, 1], "long_factor": [1, 1]})",
                  "rope_scaling.short_factor is [1,1], expected 8 numbers"},
        BadConfig{"RopeNested", R"(, "rope_parameters": {"full_attention": {}})",
                  "rope_parameters.full_attention: RoPE per layer type is not supported"},
        BadConfig{"Partial", R"(, "partial_rotary_factor": 1.5)",
                  "partial_rotary_factor is 1.5, expected at most 1"},
        BadConfig{"PartialOdd", R"(, "partial_rotary_factor": 0.19)", "RoPE rotates 3 values"},
        BadConfig{"Theta", R"(, "rope_theta": 0)", "rope_theta is 0"}),
    [](const auto& param) { return std::string(param.param.name); });

TEST(ModelConfig, NoJson) {
  EXPECT_THAT(std::string(SpecFromConfigJson("{", "c.json").status().message()),
              HasSubstr("c.json"));
  EXPECT_THAT(std::string(SpecFromConfigJson("[]", "c.json").status().message()),
              HasSubstr("c.json is not a JSON object"));
  EXPECT_THAT(std::string(SpecFromConfigFile("/nowhere/config.json").status().message()),
              HasSubstr("/nowhere/config.json"));
}

TEST(TensorParallel, NamesTheSizesThatDivide) {
  const auto message = [](const ModelSpec& spec, int size) {
    return std::string(CheckTensorParallel(spec, size).message());
  };
  const ModelSpec llama = Known("llama-3.1-8b");
  for (const int size : {1, 2, 4, 8, 16, 32}) {
    EXPECT_EQ(message(llama, size), "") << size;  // 8 KV heads are replicated from 16 on
  }
  EXPECT_THAT(message(llama, 3), HasSubstr("sizes that do: 1, 2, 4, 8, 16, 32"));
  EXPECT_THAT(message(llama, 0), HasSubstr("--tensor-parallel-size 0"));
  ModelSpec odd = llama;  // 28 heads over 4 KV heads, as Qwen2.5-7B
  odd.num_heads = 28;
  odd.num_kv_heads = 4;
  odd.intermediate_size = 18944;
  EXPECT_THAT(message(odd, 8), AllOf(HasSubstr("28 attention heads, 4 KV heads"),
                                     HasSubstr("sizes that do: 1, 2, 4")));
}

TEST(KvBytes, WindowsBoundASequence) {
  ModelSpec spec = Known("mistral-7b-v0.1");
  EXPECT_EQ(KvBytesPerSequence(spec, 1000, 2, 16), int64_t{1008} * 131072);
  EXPECT_EQ(KvBytesPerSequence(spec, 32768, 2, 16), int64_t{4096 + 16} * 131072);
  spec.layer_window.assign(32, 0);
  EXPECT_EQ(KvBytesPerSequence(spec, 32768, 2, 16), int64_t{32768} * 131072);
}

}  // namespace
}  // namespace penstock
