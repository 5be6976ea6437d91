#include "common/formats/dequantize.h"

#include <bit>
#include <cstring>

#include "common/base/check.h"

namespace penstock {
namespace {

uint16_t Load16(const uint8_t* at) {
  uint16_t value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

uint32_t Load32(const uint8_t* at) {
  uint32_t value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

// Block layouts (bytes): f16 scale d; with _1 an f16 minimum m; 5-bit types carry 32 high bits;
// then nibbles, the low ones for values 0..15 and the high ones for 16..31.
void Block4(const uint8_t* block, bool has_min, float* out) {
  const float d = HalfToFloat(Load16(block));
  const float m = has_min ? HalfToFloat(Load16(block + 2)) : 0.0f;
  const uint8_t* q = block + (has_min ? 4 : 2);
  for (int i = 0; i < 16; ++i) {
    const int low = q[i] & 15;
    const int high = q[i] >> 4;
    out[i] = has_min ? low * d + m : (low - 8) * d;
    out[i + 16] = has_min ? high * d + m : (high - 8) * d;
  }
}

void Block5(const uint8_t* block, bool has_min, float* out) {
  const float d = HalfToFloat(Load16(block));
  const float m = has_min ? HalfToFloat(Load16(block + 2)) : 0.0f;
  const uint32_t high_bits = Load32(block + (has_min ? 4 : 2));
  const uint8_t* q = block + (has_min ? 8 : 6);
  for (int i = 0; i < 16; ++i) {
    const int low = (q[i] & 15) | static_cast<int>((high_bits >> i & 1) << 4);
    const int high = (q[i] >> 4) | static_cast<int>((high_bits >> (i + 16) & 1) << 4);
    out[i] = has_min ? low * d + m : (low - 16) * d;
    out[i + 16] = has_min ? high * d + m : (high - 16) * d;
  }
}

void Block8(const uint8_t* block, float* out) {
  const float d = HalfToFloat(Load16(block));
  for (int i = 0; i < 32; ++i) out[i] = static_cast<int8_t>(block[2 + i]) * d;
}

struct ScaleMin {
  int scale = 0;
  int min = 0;
};

// Q4_K and Q5_K pack eight 6-bit scales and eight 6-bit minima into 12 bytes.
ScaleMin KScale(const uint8_t* packed, int i) {
  if (i < 4) return {packed[i] & 63, packed[i + 4] & 63};
  return {(packed[i + 4] & 15) | (packed[i - 4] >> 6) << 4, (packed[i + 4] >> 4) | (packed[i] >> 6)
                                                                                       << 4};
}

void BlockQ4K(const uint8_t* block, float* out) {
  const float d = HalfToFloat(Load16(block));
  const float dmin = HalfToFloat(Load16(block + 2));
  const uint8_t* scales = block + 4;
  const uint8_t* q = block + 16;
  for (int group = 0; group < 8; ++group) {
    const ScaleMin sm = KScale(scales, group);
    for (int i = 0; i < 32; ++i) {
      const uint8_t byte = q[group / 2 * 32 + i];
      const int value = group % 2 == 0 ? byte & 15 : byte >> 4;
      out[group * 32 + i] = d * static_cast<float>(sm.scale) * static_cast<float>(value) -
                            dmin * static_cast<float>(sm.min);
    }
  }
}

void BlockQ5K(const uint8_t* block, float* out) {
  const float d = HalfToFloat(Load16(block));
  const float dmin = HalfToFloat(Load16(block + 2));
  const uint8_t* scales = block + 4;
  const uint8_t* high = block + 16;
  const uint8_t* q = block + 48;
  for (int group = 0; group < 8; ++group) {
    const ScaleMin sm = KScale(scales, group);
    for (int i = 0; i < 32; ++i) {
      const uint8_t byte = q[group / 2 * 32 + i];
      const int value = (group % 2 == 0 ? byte & 15 : byte >> 4) | (high[i] >> group & 1) << 4;
      out[group * 32 + i] = d * static_cast<float>(sm.scale) * static_cast<float>(value) -
                            dmin * static_cast<float>(sm.min);
    }
  }
}

void BlockQ6K(const uint8_t* block, float* out) {
  const uint8_t* low = block;
  const uint8_t* high = block + 128;
  const uint8_t* scales = block + 192;
  const float d = HalfToFloat(Load16(block + 208));
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int within = i % 128;
    const int quarter = within / 32;
    const uint8_t low_byte = low[half * 64 + within % 64];
    const int nibble = within < 64 ? low_byte & 15 : low_byte >> 4;
    const int top = high[half * 32 + within % 32] >> (2 * quarter) & 3;
    const int value = (nibble | top << 4) - 32;
    out[i] =
        d * static_cast<float>(static_cast<int8_t>(scales[i / 16])) * static_cast<float>(value);
  }
}

}  // namespace

float HalfToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = bits >> 10 & 31;
  const uint32_t mantissa = bits & 1023;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | mantissa << 13);
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

float Bf16ToFloat(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

void Dequantize(DType type, std::span<const std::byte> data, std::span<float> out) {
  const BlockLayout layout = LayoutOf(type);
  const size_t blocks = data.size() / layout.bytes;
  CHECK(data.size() % layout.bytes == 0 && out.size() == blocks * layout.values);
  const auto* block = reinterpret_cast<const uint8_t*>(data.data());
  float* to = out.data();
  for (size_t b = 0; b < blocks; ++b, block += layout.bytes, to += layout.values) {
    switch (type) {
      case DType::kF32:
        std::memcpy(to, block, sizeof(float));
        break;
      case DType::kF16:
        *to = HalfToFloat(Load16(block));
        break;
      case DType::kBF16:
        *to = Bf16ToFloat(Load16(block));
        break;
      case DType::kQ4_0:
      case DType::kQ4_1:
        Block4(block, type == DType::kQ4_1, to);
        break;
      case DType::kQ5_0:
      case DType::kQ5_1:
        Block5(block, type == DType::kQ5_1, to);
        break;
      case DType::kQ8_0:
        Block8(block, to);
        break;
      case DType::kQ4_K:
        BlockQ4K(block, to);
        break;
      case DType::kQ5_K:
        BlockQ5K(block, to);
        break;
      case DType::kQ6_K:
        BlockQ6K(block, to);
        break;
    }
  }
}

}  // namespace penstock
