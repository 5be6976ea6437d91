#include "worker/model/weight_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "tests/worker/model/model_fixtures.h"
#include "worker/model/model_config.h"
#include "worker/model/tensor_list.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using testing::F32Tensor;
using testing::GgufBuilder;
using ::testing::HasSubstr;
using testing::TempFolder;

using Tensors = std::vector<F32Tensor>;

// The rows of a weight in HF's order.
std::vector<float> Values(const WeightSource& source, const std::string& name) {
  const auto view = source.Get(name);
  EXPECT_TRUE(view.ok()) << view.status();
  std::vector<float> values(view->data.size() / sizeof(float));
  const size_t row_bytes = view->data.size() / static_cast<size_t>(view->shape[0]);
  for (size_t row = 0; row < static_cast<size_t>(view->shape[0]); ++row) {
    const size_t from = view->row_order.empty() ? row : static_cast<size_t>(view->row_order[row]);
    std::memcpy(values.data() + row * row_bytes / sizeof(float),
                view->data.data() + from * row_bytes, row_bytes);
  }
  return values;
}

void ExpectTiny(const WeightSource& source, const Tensors& tensors) {
  int64_t bytes = 0;
  for (const F32Tensor& tensor : tensors) {
    EXPECT_TRUE(source.Has(tensor.name));
    EXPECT_EQ(Values(source, tensor.name), tensor.values) << tensor.name;
    bytes += static_cast<int64_t>(tensor.values.size() * sizeof(float));
  }
  EXPECT_EQ(source.total_bytes(), bytes);
  EXPECT_EQ(source.Names().size(), tensors.size());
  EXPECT_FALSE(source.Has("model.layers.9.mlp.up_proj.weight"));
  EXPECT_EQ(source.Get("model.layers.9.mlp.up_proj.weight").status().code(),
            absl::StatusCode::kNotFound);
}

std::string Opened(const std::string& path, LoadFormat format = LoadFormat::kAuto) {
  return std::string(OpenModelFiles(path, format).status().message());
}

TEST(Safetensors, SingleFile) {
  TempFolder folder;
  folder.Write("config.json", testing::kTinyConfig);
  folder.Write("model.safetensors", testing::SafetensorsBytes(testing::TinyTensors()));
  const auto files = OpenModelFiles(folder.path(), LoadFormat::kAuto);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->format, "safetensors float32");
  ExpectTiny(*files->weights, testing::TinyTensors());
}

TEST(Safetensors, ShardsWithIndex) {
  TempFolder folder;
  folder.Write("config.json", testing::kTinyConfig);
  const Tensors all = testing::TinyTensors();
  const Tensors first(all.begin(), all.begin() + 7);
  const Tensors second(all.begin() + 7, all.end());
  folder.Write("a.safetensors", testing::SafetensorsBytes(first));
  folder.Write("b.safetensors", testing::SafetensorsBytes(second));
  std::string map;
  for (const F32Tensor& tensor : all) {
    const bool in_first = map.size() < 1 || &tensor - all.data() < 7;
    map += absl::StrFormat("%s\"%s\":\"%s\"", map.empty() ? "" : ",", tensor.name,
                           in_first ? "a.safetensors" : "b.safetensors");
  }
  folder.Write("model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
  const auto files = OpenModelFiles(folder.path(), LoadFormat::kSafetensors);
  ASSERT_TRUE(files.ok()) << files.status();
  ExpectTiny(*files->weights, all);
  EXPECT_THAT(files->weights->Location("lm_head.weight"), HasSubstr("b.safetensors"));
}

TEST(Safetensors, NamesWithoutModelPrefix) {
  TempFolder folder;
  folder.Write("config.json", testing::kTinyConfig);
  Tensors tensors = testing::TinyTensors();
  for (F32Tensor& tensor : tensors) {
    if (tensor.name.starts_with("model.")) tensor.name = tensor.name.substr(6);
  }
  folder.Write("model.safetensors", testing::SafetensorsBytes(tensors));
  const auto files = OpenModelFiles(folder.path(), LoadFormat::kAuto);
  ASSERT_TRUE(files.ok()) << files.status();
  ExpectTiny(*files->weights, testing::TinyTensors());
}

// Changes one of the tiny model's tensors and says what the loader says.
std::string WithChange(const std::function<void(Tensors&)>& change,
                       const std::string& config = testing::kTinyConfig) {
  TempFolder folder;
  folder.Write("config.json", config);
  Tensors tensors = testing::TinyTensors();
  change(tensors);
  folder.Write("model.safetensors", testing::SafetensorsBytes(tensors));
  return Opened(folder.path());
}

TEST(CheckWeights, NamesFileTensorExpectedAndActual) {
  EXPECT_EQ(WithChange([](Tensors&) {}), "");
  EXPECT_THAT(WithChange([](Tensors& t) {
                t[2] = testing::Numbered(t[2].name, {16, 8}, 3);
              }),
              AllOf(HasSubstr("/model.safetensors: tensor 'model.layers.0.self_attn.q_proj.weight' "
                              "has shape [16, 8], expected [16, 16]")));
  EXPECT_THAT(WithChange([](Tensors& t) { t.erase(t.begin() + 5); }),
              AllOf(HasSubstr("tensor 'model.layers.0.self_attn.o_proj.weight' is not in"),
                    HasSubstr("/model.safetensors")));
  EXPECT_THAT(WithChange([](Tensors& t) { t.pop_back(); }),
              HasSubstr("tensor 'lm_head.weight' is not in"));
  EXPECT_THAT(
      WithChange([](Tensors& t) {
        t.push_back({"model.layers.0.self_attn.q_proj.bias", {16}, std::vector<float>(16)});
      }),
      HasSubstr("'model.layers.0.self_attn.q_proj.bias' has no place in a LlamaForCausalLM of 2 "
                "layers"));
  EXPECT_THAT(WithChange([](Tensors& t) {
                t.push_back({"model.layers.2.mlp.up_proj.weight", {1}, {0.0f}});
              }),
              HasSubstr("would give wrong answers"));
  EXPECT_EQ(WithChange([](Tensors& t) {
              t.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {1}, {1.0f}});
            }),
            "");
}

TEST(CheckWeights, TiedHeads) {
  const std::string tied = testing::Replaced(testing::kTinyConfig, "\"vocab_size\"",
                                             "\"tie_word_embeddings\": true, \"vocab_size\"");
  EXPECT_EQ(WithChange([](Tensors& t) { t.pop_back(); }, tied), "");
  EXPECT_EQ(WithChange([](Tensors&) {}, tied), "");  // a head that is there is not used
}

// The tiny model as llama.cpp's converter writes it: its names, and for "llama" q and k with each
// head's halves interleaved (reshape (heads, 2, size/2), swap the last two axes).
std::string TinyGguf(const std::string& arch, bool bias) {
  GgufBuilder gguf;
  gguf.String("general.architecture", arch);
  gguf.Uint(arch + ".embedding_length", 16);
  gguf.Uint(arch + ".feed_forward_length", 24);
  gguf.Uint(arch + ".block_count", 2);
  gguf.Uint(arch + ".attention.head_count", 4);
  gguf.Uint(arch + ".attention.head_count_kv", 2);
  gguf.Uint(arch + ".context_length", 64);
  gguf.Strings("tokenizer.ggml.tokens", std::vector<std::string>(10, "t"));
  const std::pair<const char*, const char*> names[] = {
      {"model.embed_tokens", "token_embd"},
      {"model.norm", "output_norm"},
      {"lm_head", "output"},
      {"model.layers.", "blk."},
      {"input_layernorm", "attn_norm"},
      {"post_attention_layernorm", "ffn_norm"},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"},
  };
  for (F32Tensor tensor : testing::TinyTensors(bias)) {
    const bool permuted = tensor.name.find("q_proj") != std::string::npos ||
                          tensor.name.find("k_proj") != std::string::npos;
    if (arch == "llama" && permuted) {
      const std::vector<float> plain = tensor.values;
      const size_t width = plain.size() / static_cast<size_t>(tensor.shape[0]);
      size_t to = 0;
      for (size_t head = 0; head < static_cast<size_t>(tensor.shape[0]) / 4; ++head) {
        for (size_t j = 0; j < 2; ++j) {
          for (size_t half = 0; half < 2; ++half) {
            const size_t row = head * 4 + half * 2 + j;
            for (size_t c = 0; c < width; ++c) tensor.values[to++] = plain[row * width + c];
          }
        }
      }
    }
    for (const auto& [hf, short_name] : names) {
      const size_t at = tensor.name.find(hf);
      if (at != std::string::npos) tensor.name.replace(at, std::strlen(hf), short_name);
    }
    gguf.Tensor(std::move(tensor));
  }
  return gguf.Bytes();
}

class GgufWeights : public ::testing::TestWithParam<std::pair<const char*, bool>> {};

TEST_P(GgufWeights, HaveHfNamesAndRowOrder) {
  const auto& [arch, bias] = GetParam();
  TempFolder folder;
  const std::string path = folder.Write("tiny.gguf", TinyGguf(arch, bias));
  const auto files = OpenModelFiles(path, LoadFormat::kAuto);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->format, "GGUF F32");
  EXPECT_EQ(files->spec.qkv_bias, bias);
  EXPECT_FALSE(files->spec.tie_word_embeddings);
  ExpectTiny(*files->weights, testing::TinyTensors(bias));
  const auto q = files->weights->Get("model.layers.1.self_attn.q_proj.weight");
  EXPECT_EQ(q->row_order.empty(), std::string_view(arch) != "llama");
  EXPECT_THAT(files->weights->Location("model.layers.1.self_attn.q_proj.weight"),
              HasSubstr("tiny.gguf (as 'blk.1.attn_q.weight')"));
  // The folder that holds it alone serves as well.
  EXPECT_EQ(Opened(folder.path()), "");
}

INSTANTIATE_TEST_SUITE_P(Architectures, GgufWeights,
                         ::testing::Values(std::pair("llama", false), std::pair("llama", true),
                                           std::pair("qwen2", true)));

TEST(GgufWeightsErrors, NameTheTensorInTheFile) {
  TempFolder folder;
  std::string bytes = TinyGguf("llama", false);
  const size_t at = bytes.find("blk.1.ffn_gate.weight");
  bytes.replace(at, 21, "blk.1.ffn_gaze.weight");
  const std::string path = folder.Write("tiny.gguf", bytes);
  EXPECT_THAT(Opened(path), HasSubstr("'model.layers.1.mlp.gate_proj.weight' is not in " + path));
}

TEST(OpenModelFiles, SaysWhatIsMissing) {
  TempFolder folder;
  EXPECT_THAT(Opened("/nowhere"), HasSubstr("/nowhere does not exist"));
  EXPECT_THAT(Opened(folder.path()), HasSubstr("holds no model: expected config.json with"));
  folder.Write("pytorch_model.bin", "x");
  EXPECT_THAT(Opened(folder.path()), HasSubstr("PyTorch pickle files only"));
  folder.Write("a.gguf", "x");
  EXPECT_THAT(Opened(folder.path()), HasSubstr("a.gguf"));
  folder.Write("b.gguf", "x");
  EXPECT_THAT(Opened(folder.path()), HasSubstr("holds 2 GGUF files: name one of them"));
  EXPECT_THAT(Opened(folder.path() + "/a.gguf", LoadFormat::kSafetensors),
              HasSubstr("--load-format is safetensors: name the folder"));
  folder.Write("config.json", testing::kTinyConfig);
  EXPECT_THAT(Opened(folder.path(), LoadFormat::kSafetensors), HasSubstr("model.safetensors"));
  EXPECT_THAT(std::string(ParseLoadFormat("pt").status().message()),
              HasSubstr("--load-format is 'pt', expected auto, safetensors, gguf or dummy"));
}

TEST(Dummy, IsDeterministicAndComplete) {
  TempFolder folder;
  folder.Write("config.json", testing::kTinyConfig);
  const auto files = OpenModelFiles(folder.path(), LoadFormat::kDummy, 7);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->format, "dummy float32");
  const auto again = OpenModelFiles(folder.path() + "/config.json", LoadFormat::kDummy, 7);
  const auto other = OpenModelFiles(folder.path(), LoadFormat::kDummy, 8);
  const std::string name = "model.layers.1.mlp.down_proj.weight";
  EXPECT_EQ(Values(*files->weights, name), Values(*again->weights, name));
  EXPECT_NE(Values(*files->weights, name), Values(*other->weights, name));
  EXPECT_EQ(Values(*files->weights, "model.norm.weight"), std::vector<float>(16, 1.0f));

  double sum = 0.0;
  double squares = 0.0;
  size_t count = 0;
  for (const NamedShape& tensor : RequiredTensors(files->spec)) {
    if (tensor.is_norm) continue;
    for (const float value : Values(*files->weights, tensor.name)) {
      sum += value;
      squares += double{value} * value;
      ++count;
    }
  }
  EXPECT_NEAR(sum / static_cast<double>(count), 0.0, 0.001);
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(count)), 0.02, 0.001);
}

TEST(Dummy, LargeModelsShareMemory) {
  auto spec = SpecFromConfigFile(testing::ConfigsFolder() + "/llama-3.1-8b.json");
  spec->weights_dtype = "float16";
  const auto source = MakeDummySource(*spec, 0);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_TRUE(CheckWeights(*spec, **source).ok()) << CheckWeights(*spec, **source);
  EXPECT_EQ((*source)->total_bytes(), CountParameters(*spec) * 2);
  const auto head = (*source)->Get("lm_head.weight");
  uint16_t last = 0;
  std::memcpy(&last, head->data.data() + head->data.size() - 2, 2);  // readable to the end
  EXPECT_LT(last & 0x7FFF, 0x3C00);                                  // below 1
}

TEST(DefaultModel, HasTheSpecOfItsConfig) {
  const char* path = std::getenv("PENSTOCK_TEST_MODEL");
  if (path == nullptr) GTEST_SKIP() << "PENSTOCK_TEST_MODEL names no SmolLM2-135M GGUF";
  const auto files = OpenModelFiles(path, LoadFormat::kAuto);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->format, "GGUF Q4_1");
  ModelSpec spec = SpecFromConfigFile(testing::ConfigsFolder() + "/smollm2-135m.json").value();
  EXPECT_NEAR(files->spec.rms_norm_eps, spec.rms_norm_eps, 1e-12);
  spec.rms_norm_eps = files->spec.rms_norm_eps;
  EXPECT_EQ(SpecText(files->spec), SpecText(spec));
}

}  // namespace
}  // namespace penstock
