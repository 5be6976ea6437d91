#pragma once

// Small model files for tests, written to a temporary folder: GGUF and safetensors.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"

namespace penstock::testing {

// A folder that goes with the test.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = ::testing::TempDir() + "penstock-model-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  std::string Write(const std::string& name, std::string_view content) const {
    const std::string file = path_ + "/" + name;
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    std::ofstream(file, std::ios::binary).write(content.data(), std::ssize(content));
    return file;
  }

 private:
  std::string path_;
};

// The file's text with the first `from` replaced; fails the test when it is not there.
inline std::string Replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " is not in " << text;
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

inline std::string ConfigsFolder() {
  return std::string(std::getenv("PENSTOCK_TEST_DATA")) + "/../../worker/model/configs";
}
inline std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

struct F32Tensor {
  std::string name;
  std::vector<int64_t> shape;  // outermost first
  std::vector<float> values;
};

inline void AppendRaw(std::string* out, const void* data, size_t size) {
  out->append(static_cast<const char*>(data), size);
}
template <typename T>
void AppendInt(std::string* out, T value) {
  AppendRaw(out, &value, sizeof(value));
}

// GGUF version 3 with f32 tensors.
class GgufBuilder {
 public:
  void Uint(std::string_view key, uint32_t value) {
    Key(key, 4);
    AppendInt(&metadata_, value);
  }
  void Float(std::string_view key, float value) {
    Key(key, 6);
    AppendRaw(&metadata_, &value, sizeof(value));
  }
  void String(std::string_view key, std::string_view value) {
    Key(key, 8);
    Text(&metadata_, value);
  }
  void Uints(std::string_view key, const std::vector<uint32_t>& values) {
    Key(key, 9);
    AppendInt(&metadata_, uint32_t{4});
    AppendInt(&metadata_, uint64_t{values.size()});
    for (const uint32_t value : values) AppendInt(&metadata_, value);
  }
  void Strings(std::string_view key, const std::vector<std::string>& values) {
    Key(key, 9);
    AppendInt(&metadata_, uint32_t{8});
    AppendInt(&metadata_, uint64_t{values.size()});
    for (const std::string& value : values) Text(&metadata_, value);
  }
  void Tensor(F32Tensor tensor) { tensors_.push_back(std::move(tensor)); }

  std::string Bytes() const {
    std::string out = "GGUF";
    AppendInt(&out, uint32_t{3});
    AppendInt(&out, uint64_t{tensors_.size()});
    AppendInt(&out, count_);
    out += metadata_;
    std::string data;
    for (const F32Tensor& tensor : tensors_) {
      Text(&out, tensor.name);
      AppendInt(&out, static_cast<uint32_t>(tensor.shape.size()));
      for (size_t i = tensor.shape.size(); i-- > 0;) {
        AppendInt(&out, static_cast<uint64_t>(tensor.shape[i]));
      }
      AppendInt(&out, uint32_t{0});
      data.resize((data.size() + 31) / 32 * 32);
      AppendInt(&out, uint64_t{data.size()});
      AppendRaw(&data, tensor.values.data(), tensor.values.size() * sizeof(float));
    }
    out.resize((out.size() + 31) / 32 * 32);
    return out + data;
  }

 private:
  static void Text(std::string* out, std::string_view text) {
    AppendInt(out, uint64_t{text.size()});
    out->append(text);
  }
  void Key(std::string_view key, uint32_t type) {
    ++count_;
    Text(&metadata_, key);
    AppendInt(&metadata_, type);
  }

  uint64_t count_ = 0;
  std::string metadata_;
  std::vector<F32Tensor> tensors_;
};

inline std::string SafetensorsBytes(const std::vector<F32Tensor>& tensors) {
  std::string header = "{";
  std::string data;
  for (const F32Tensor& tensor : tensors) {
    std::string shape;
    for (const int64_t size : tensor.shape) {
      shape += absl::StrFormat("%s%d", shape.empty() ? "" : ",", size);
    }
    const size_t begin = data.size();
    AppendRaw(&data, tensor.values.data(), tensor.values.size() * sizeof(float));
    header +=
        absl::StrFormat("%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%d,%d]}",
                        header.size() == 1 ? "" : ",", tensor.name, shape, begin, data.size());
  }
  header += "}";
  std::string out;
  AppendInt(&out, uint64_t{header.size()});
  return out + header + data;
}

// A Llama of 2 layers, 4 heads of 4 over 2 KV heads, 10 tokens. Each value tells where it belongs:
// tensor number * 1000 + row + column / 100.
inline constexpr char kTinyConfig[] = R"({"architectures": ["LlamaForCausalLM"],
 "vocab_size": 10, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
 "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
 "rms_norm_eps": 1e-5, "torch_dtype": "float32"})";

inline F32Tensor Numbered(std::string name, std::vector<int64_t> shape, int number) {
  F32Tensor tensor{std::move(name), std::move(shape), {}};
  const int64_t cols = tensor.shape.size() == 2 ? tensor.shape[1] : 1;
  for (int64_t row = 0; row < tensor.shape[0]; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      tensor.values.push_back(static_cast<float>(number * 1000 + row) +
                              static_cast<float>(col) / 100.0f);
    }
  }
  return tensor;
}

inline std::vector<F32Tensor> TinyTensors(bool bias = false) {
  std::vector<F32Tensor> tensors;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    tensors.push_back(Numbered(name, std::move(shape), static_cast<int>(tensors.size()) + 1));
  };
  add("model.embed_tokens.weight", {10, 16});
  for (int layer = 0; layer < 2; ++layer) {
    const std::string base = absl::StrFormat("model.layers.%d.", layer);
    add(base + "input_layernorm.weight", {16});
    add(base + "self_attn.q_proj.weight", {16, 16});
    add(base + "self_attn.k_proj.weight", {8, 16});
    add(base + "self_attn.v_proj.weight", {8, 16});
    if (bias) {
      add(base + "self_attn.q_proj.bias", {16});
      add(base + "self_attn.k_proj.bias", {8});
      add(base + "self_attn.v_proj.bias", {8});
    }
    add(base + "self_attn.o_proj.weight", {16, 16});
    add(base + "post_attention_layernorm.weight", {16});
    add(base + "mlp.gate_proj.weight", {24, 16});
    add(base + "mlp.up_proj.weight", {24, 16});
    add(base + "mlp.down_proj.weight", {16, 24});
  }
  add("model.norm.weight", {16});
  add("lm_head.weight", {10, 16});
  return tensors;
}

}  // namespace penstock::testing
