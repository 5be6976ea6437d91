#include "common/formats/tensor.h"

#include "absl/strings/str_format.h"

namespace penstock {

BlockLayout LayoutOf(DType type) {
  switch (type) {
    case DType::kF32:
      return {1, 4};
    case DType::kF16:
    case DType::kBF16:
      return {1, 2};
    case DType::kQ4_0:
      return {32, 18};
    case DType::kQ4_1:
      return {32, 20};
    case DType::kQ5_0:
      return {32, 22};
    case DType::kQ5_1:
      return {32, 24};
    case DType::kQ8_0:
      return {32, 34};
    case DType::kQ4_K:
      return {256, 144};
    case DType::kQ5_K:
      return {256, 176};
    case DType::kQ6_K:
      return {256, 210};
  }
  return {1, 4};
}

std::string_view DTypeName(DType type) {
  switch (type) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kQ4_0:
      return "Q4_0";
    case DType::kQ4_1:
      return "Q4_1";
    case DType::kQ5_0:
      return "Q5_0";
    case DType::kQ5_1:
      return "Q5_1";
    case DType::kQ8_0:
      return "Q8_0";
    case DType::kQ4_K:
      return "Q4_K";
    case DType::kQ5_K:
      return "Q5_K";
    case DType::kQ6_K:
      return "Q6_K";
  }
  return "?";
}

std::optional<int64_t> RowBytes(DType type, int64_t columns) {
  const BlockLayout layout = LayoutOf(type);
  if (columns < 1 || columns % layout.values != 0) return std::nullopt;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(columns / layout.values, int64_t{layout.bytes}, &bytes)) {
    return std::nullopt;
  }
  return bytes;
}

std::string ShapeText(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += absl::StrFormat("%s%d", i == 0 ? "" : ", ", shape[i]);
  }
  return text + "]";
}

std::optional<int64_t> CheckedElements(std::span<const int64_t> shape) {
  int64_t product = 1;
  for (const int64_t dimension : shape) {
    if (dimension < 1 || __builtin_mul_overflow(product, dimension, &product) ||
        product > (int64_t{1} << 62)) {
      return std::nullopt;
    }
  }
  return product;
}

std::optional<int64_t> CheckedBytes(DType type, std::span<const int64_t> shape) {
  const std::optional<int64_t> elements = CheckedElements(shape);
  if (!elements.has_value()) return std::nullopt;
  // A block never crosses a row.
  if (!shape.empty() && shape.back() % LayoutOf(type).values != 0) return std::nullopt;
  return RowBytes(type, *elements);
}

}  // namespace penstock
