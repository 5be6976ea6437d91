#pragma once

// Tensors as they lie in a model file: type, shape, and the bytes in the mapped file.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
};

// Values per block and bytes per block: {1, 4} for kF32, {32, 18} for kQ4_0, {256, 144} for kQ4_K.
struct BlockLayout {
  int32_t values = 1;
  int32_t bytes = 0;
};
BlockLayout LayoutOf(DType type);
std::string_view DTypeName(DType type);  // "F32", "Q4_K"

// Bytes of one row of `columns` values; nullopt when columns is no multiple of the block.
std::optional<int64_t> RowBytes(DType type, int64_t columns);

struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;       // row-major, outermost first; every dimension >= 1
  std::span<const std::byte> data;  // inside the file's mapping, its size checked
};

// "[49152, 576]", for messages.
std::string ShapeText(std::span<const int64_t> shape);

// Product of the dimensions, or nullopt beyond 2^62 or with a dimension < 1.
std::optional<int64_t> CheckedElements(std::span<const int64_t> shape);
// Bytes of a tensor of this type and shape, or nullopt when impossible.
std::optional<int64_t> CheckedBytes(DType type, std::span<const int64_t> shape);

}  // namespace penstock
