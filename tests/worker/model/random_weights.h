#pragma once

// Random quantised weights of a spec in memory, for speed on machines where no model lies: the same
// work as a real file of these types.

#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/model/tensor_list.h"
#include "worker/model/weights.h"

namespace penstock {

class RandomWeights : public WeightSource {
 public:
  // Types of the layers' matrices and of the embedding (and head): Q4_0, Q4_1 or Q8_0.
  static absl::StatusOr<std::unique_ptr<WeightSource>> Create(const ModelSpec& spec, DType layers,
                                                              DType embedding) {
    auto source = std::make_unique<RandomWeights>();
    std::mt19937 random(1);
    for (const NamedShape& tensor : RequiredTensors(spec)) {
      const bool in_layer = tensor.name.starts_with("model.layers.");
      Tensor made = {.dtype = DType::kF32, .shape = tensor.shape};
      if (tensor.shape.size() == 1) {
        made.data.resize(static_cast<size_t>(tensor.shape[0]) * 4);
        const float value = tensor.is_norm ? 1.0f : 0.0f;
        for (size_t at = 0; at < made.data.size(); at += 4) {
          std::memcpy(made.data.data() + at, &value, 4);
        }
      } else {
        made.dtype = in_layer ? layers : embedding;
        ASSIGN_OR_RETURN(made.data, RandomBlocks(tensor, made.dtype, random));
      }
      source->total_bytes_ += static_cast<int64_t>(made.data.size());
      source->tensors_.emplace(tensor.name, std::move(made));
    }
    return std::unique_ptr<WeightSource>(std::move(source));
  }

  absl::StatusOr<WeightView> Get(std::string_view name) const override {
    const auto it = tensors_.find(name);
    if (it == tensors_.end()) return NotFound("no random tensor '%s'", name);
    const Tensor& tensor = it->second;
    return WeightView{.dtype = tensor.dtype, .shape = tensor.shape, .data = tensor.data};
  }
  bool Has(std::string_view name) const override { return tensors_.contains(name); }
  int64_t total_bytes() const override { return total_bytes_; }

 private:
  struct Tensor {
    DType dtype;
    std::vector<int64_t> shape;
    std::vector<std::byte> data;
  };

  // Scales that give the weights a deviation of about 0.02, as halves.
  static absl::StatusOr<std::vector<std::byte>> RandomBlocks(const NamedShape& tensor, DType dtype,
                                                             std::mt19937& random) {
    constexpr uint16_t kScaleOfNibbles = 0x1C68;  // 0.0043
    constexpr uint16_t kMinimum = 0xA820;         // -0.0322, the middle of the sixteen values
    constexpr uint16_t kScaleOfBytes = 0x0C6C;    // 0.00027
    if (dtype != DType::kQ4_0 && dtype != DType::kQ4_1 && dtype != DType::kQ8_0) {
      return InvalidArgument("random weights are Q4_0, Q4_1 or Q8_0, not %s",
                             std::string(DTypeName(dtype)));
    }
    const std::optional<int64_t> bytes = CheckedBytes(dtype, tensor.shape);
    if (!bytes.has_value()) return InvalidArgument("%s: no whole blocks", tensor.name);
    std::vector<std::byte> data(static_cast<size_t>(*bytes));
    for (std::byte& b : data) b = static_cast<std::byte>(random());
    const auto block = static_cast<size_t>(LayoutOf(dtype).bytes);
    for (size_t at = 0; at < data.size(); at += block) {
      const uint16_t scale = dtype == DType::kQ8_0 ? kScaleOfBytes : kScaleOfNibbles;
      std::memcpy(data.data() + at, &scale, 2);
      if (dtype == DType::kQ4_1) std::memcpy(data.data() + at + 2, &kMinimum, 2);
    }
    return data;
  }

  std::map<std::string, Tensor, std::less<>> tensors_;
  int64_t total_bytes_ = 0;
};

}  // namespace penstock
