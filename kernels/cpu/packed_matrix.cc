#include "kernels/cpu/packed_matrix.h"

#include <cstdlib>
#include <cstring>

namespace penstock::kernels {
namespace {

constexpr int64_t kAlign = 64;

void* AllocateZeroed(int64_t bytes) {
  const size_t size = static_cast<size_t>((bytes + kAlign - 1) / kAlign * kAlign);
  void* p = std::aligned_alloc(kAlign, size > 0 ? size : kAlign);
  if (p == nullptr) std::abort();  // sizes were checked against the machine before
  std::memset(p, 0, size);
  return p;
}

uint8_t Byte(const std::byte* p, int64_t i) { return static_cast<uint8_t>(p[i]); }

void PutHalf(uint8_t* to, int output, const std::byte* from) {
  std::memcpy(to + 2 * output, from, 2);
}

void PutWord(uint8_t* to, int output, uint32_t word) {
  std::memcpy(to + 4 * output, &word, sizeof(word));
}

// Word j of four: eight values of four bits, of every fourth input, lowest first.
template <typename ValueOf>
uint32_t NibbleWord(int j, ValueOf value) {
  uint32_t word = 0;
  for (int i = 0; i < 8; ++i) word |= static_cast<uint32_t>(value(4 * i + j) & 15) << (4 * i);
  return word;
}

constexpr int kHalves = 2 * kPanel;  // bytes of one f16 per output
constexpr int kWords = 4 * kPanel;   // bytes of one u32 per output

// Q4_0, Q4_1, Q5_0, Q5_1: one block of one output.
void PackNibbles(const std::byte* block, bool has_min, bool has_high, int output, uint8_t* to) {
  PutHalf(to, output, block);
  to += kHalves;
  block += 2;
  if (has_min) {
    PutHalf(to, output, block);
    to += kHalves;
    block += 2;
  }
  if (has_high) {
    std::memcpy(to + 4 * output, block, 4);  // bit k is input k's, in the file too
    to += kWords;
    block += 4;
  }
  for (int j = 0; j < 4; ++j) {
    const uint32_t word = NibbleWord(
        j, [block](int k) { return k < 16 ? Byte(block, k) & 15 : Byte(block, k - 16) >> 4; });
    PutWord(to + j * kWords, output, word);
  }
}

void PackQ8(const std::byte* block, int output, uint8_t* to) {
  PutHalf(to, output, block);
  to += kHalves;
  for (int j = 0; j < 8; ++j) {
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) {
      const uint32_t biased = Byte(block, 2 + 8 * i + j) ^ 0x80u;
      word |= biased << (8 * i);
    }
    PutWord(to + j * kWords, output, word);
  }
}

// Q4_K and Q5_K keep eight 6-bit scales and minima in 12 bytes; here each gets a byte.
void UnpackScale(const std::byte* packed, int group, uint8_t* scale, uint8_t* minimum) {
  if (group < 4) {
    *scale = Byte(packed, group) & 63;
    *minimum = Byte(packed, group + 4) & 63;
    return;
  }
  const int g = group - 4;
  *scale = static_cast<uint8_t>((Byte(packed, g + 8) & 15) | (Byte(packed, g) >> 6) << 4);
  *minimum = static_cast<uint8_t>((Byte(packed, g + 8) >> 4) | (Byte(packed, g + 4) >> 6) << 4);
}

void PackQ45K(const std::byte* block, bool has_high, int output, uint8_t* to) {
  PutHalf(to, output, block);
  PutHalf(to + kHalves, output, block + 2);
  to += 2 * kHalves;
  const std::byte* scales = block + 4;
  const std::byte* high = block + 16;
  const std::byte* low = block + (has_high ? 48 : 16);
  for (int g = 0; g < 8; ++g) {
    UnpackScale(scales, g, to + output, to + kPanel + output);
    to += 2 * kPanel;
    if (has_high) {
      uint32_t bits = 0;
      for (int k = 0; k < 32; ++k) bits |= static_cast<uint32_t>(Byte(high, k) >> g & 1) << k;
      PutWord(to, output, bits);
      to += kWords;
    }
    for (int j = 0; j < 4; ++j) {
      const uint32_t word = NibbleWord(j, [low, g](int k) {
        const uint8_t byte = Byte(low, g / 2 * 32 + k);
        return g % 2 == 0 ? byte & 15 : byte >> 4;
      });
      PutWord(to, output, word);
      to += kWords;
    }
  }
}

void PackQ6K(const std::byte* block, int output, uint8_t* to) {
  PutHalf(to, output, block + 208);
  to += kHalves;
  // Group g: half g / 4 of the block, quarter g % 4 of that half.
  for (int g = 0; g < 8; ++g) {
    to[output] = Byte(block, 192 + 2 * g);
    to[kPanel + output] = Byte(block, 192 + 2 * g + 1);
    to += 2 * kPanel;
    const std::byte* high = block + 128 + g / 4 * 32;
    for (int h = 0; h < 2; ++h) {
      uint32_t bits = 0;
      for (int k = 0; k < 16; ++k) {
        bits |= static_cast<uint32_t>(Byte(high, 16 * h + k) >> (2 * (g % 4)) & 3) << (2 * k);
      }
      PutWord(to, output, bits);
      to += kWords;
    }
    const std::byte* low = block + g / 4 * 64 + g % 2 * 32;
    for (int j = 0; j < 4; ++j) {
      const uint32_t word = NibbleWord(
          j, [low, g](int k) { return g % 4 < 2 ? Byte(low, k) & 15 : Byte(low, k) >> 4; });
      PutWord(to, output, word);
      to += kWords;
    }
  }
}

void PackBlock(WeightFormat format, const std::byte* block, int output, uint8_t* to) {
  switch (format) {
    case WeightFormat::kF32:
      std::memcpy(to + 4 * output, block, 4);
      return;
    case WeightFormat::kF16:
    case WeightFormat::kBF16:
      std::memcpy(to + 2 * output, block, 2);
      return;
    case WeightFormat::kQ4_0:
      return PackNibbles(block, false, false, output, to);
    case WeightFormat::kQ4_1:
      return PackNibbles(block, true, false, output, to);
    case WeightFormat::kQ5_0:
      return PackNibbles(block, false, true, output, to);
    case WeightFormat::kQ5_1:
      return PackNibbles(block, true, true, output, to);
    case WeightFormat::kQ8_0:
      return PackQ8(block, output, to);
    case WeightFormat::kQ4_K:
      return PackQ45K(block, false, output, to);
    case WeightFormat::kQ5_K:
      return PackQ45K(block, true, output, to);
    case WeightFormat::kQ6_K:
      return PackQ6K(block, output, to);
  }
}

}  // namespace

void FreeDeleter::operator()(void* p) const { std::free(p); }

FormatBlock BlockOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return {1, 4};
    case WeightFormat::kF16:
    case WeightFormat::kBF16:
      return {1, 2};
    case WeightFormat::kQ4_0:
      return {32, 18};
    case WeightFormat::kQ4_1:
      return {32, 20};
    case WeightFormat::kQ5_0:
      return {32, 22};
    case WeightFormat::kQ5_1:
      return {32, 24};
    case WeightFormat::kQ8_0:
      return {32, 34};
    case WeightFormat::kQ4_K:
      return {256, 144};
    case WeightFormat::kQ5_K:
      return {256, 176};
    case WeightFormat::kQ6_K:
      return {256, 210};
  }
  std::abort();
}

int64_t PackedBlockBytes(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ4_K:
      return 2 * kHalves + 8 * (2 * kPanel + 4 * kWords);
    case WeightFormat::kQ5_K:
      return 2 * kHalves + 8 * (2 * kPanel + 5 * kWords);
    case WeightFormat::kQ6_K:
      return kHalves + 8 * (2 * kPanel + 6 * kWords);
    default:
      return static_cast<int64_t>(BlockOf(format).bytes) * kPanel;
  }
}

PackedMatrix AllocateMatrix(WeightFormat format, int64_t num_outputs, int64_t num_inputs) {
  PackedMatrix matrix;
  matrix.format = format;
  matrix.num_outputs = num_outputs;
  matrix.num_inputs = num_inputs;
  matrix.panel_bytes = num_inputs / BlockOf(format).values * PackedBlockBytes(format);
  matrix.data.reset(static_cast<uint8_t*>(AllocateZeroed(matrix.bytes())));
  return matrix;
}

std::unique_ptr<float, FreeDeleter> AllocateFloats(int64_t count) {
  return std::unique_ptr<float, FreeDeleter>(static_cast<float*>(AllocateZeroed(count * 4)));
}

void PackPanel(PackedMatrix& matrix, int64_t panel, const std::byte* const* rows) {
  const FormatBlock block = BlockOf(matrix.format);
  const int64_t packed_bytes = PackedBlockBytes(matrix.format);
  const int64_t outputs =
      matrix.num_outputs - panel * kPanel < kPanel ? matrix.num_outputs - panel * kPanel : kPanel;
  uint8_t* to = matrix.data.get() + panel * matrix.panel_bytes;
  for (int64_t b = 0; b < matrix.num_inputs / block.values; ++b, to += packed_bytes) {
    for (int64_t i = 0; i < outputs; ++i) {
      PackBlock(matrix.format, rows[i] + b * block.bytes, static_cast<int>(i), to);
    }
  }
}

}  // namespace penstock::kernels
