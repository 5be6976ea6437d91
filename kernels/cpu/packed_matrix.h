#pragma once

// A weight matrix repacked for the CPU kernels: still quantised, but with 32 output columns (rows
// of the file) side by side, so that vector lanes run along the outputs and one panel is read as
// one straight stream.
//
// Panel p holds the outputs [32p, 32p + 32); missing ones are zero weights. Within a panel:
//   F32 F16 BF16   [k][32 outputs]
//   Q4_0 Q4_1 Q5_0 Q5_1 Q8_0, per 32 inputs:
//                  d f16[32], (minimum f16[32]), (fifth bits u32[32]), words u32[4 or 8][32]
//   Q4_K Q5_K Q6_K, per 256 inputs: d f16[32], (dmin f16[32]), then per 32 inputs:
//                  scale u8[32] and minimum u8[32], or two i8[32] scales (Q6_K),
//                  (high bits u32[1 or 2][32]), words u32[4][32]
// Word j of an output has eight nibbles, from the low end of the inputs j, j + 4, j + 8, ...; or
// (Q8_0) four bytes q + 128 of the inputs j, j + 8, j + 16, j + 24. So the inputs come in order
// when the same field of each word is taken in turn, and a field's place changes once for several
// words.

#include <cstddef>
#include <cstdint>
#include <memory>

namespace penstock::kernels {

enum class WeightFormat : uint8_t {
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

inline constexpr int32_t kPanel = 32;  // outputs side by side

// Inputs per block of the format in a file, and that block's bytes: {32, 18} for Q4_0.
struct FormatBlock {
  int32_t values;
  int32_t bytes;
};
FormatBlock BlockOf(WeightFormat format);

// Bytes of one packed block of 32 outputs, which covers BlockOf(format).values inputs.
int64_t PackedBlockBytes(WeightFormat format);

struct FreeDeleter {
  void operator()(void* p) const;
};

struct PackedMatrix {
  WeightFormat format = WeightFormat::kF32;
  int64_t num_outputs = 0;
  int64_t num_inputs = 0;
  int64_t panel_bytes = 0;
  std::unique_ptr<uint8_t, FreeDeleter> data;  // 64-byte aligned, num_panels() * panel_bytes
  std::unique_ptr<float, FreeDeleter> bias;    // padded to whole panels; null = none

  int64_t num_panels() const { return (num_outputs + kPanel - 1) / kPanel; }
  int64_t bytes() const { return num_panels() * panel_bytes; }
  const uint8_t* panel(int64_t p) const { return data.get() + p * panel_bytes; }
};

// Memory for a matrix, all zero. num_inputs is a multiple of BlockOf(format).values.
PackedMatrix AllocateMatrix(WeightFormat format, int64_t num_outputs, int64_t num_inputs);

// Zeroed floats, 64-byte aligned.
std::unique_ptr<float, FreeDeleter> AllocateFloats(int64_t count);

// Fills one panel. rows[i] points at the file's bytes of output 32 * panel + i, for those that
// exist. Panels may be packed by several threads at once.
void PackPanel(PackedMatrix& matrix, int64_t panel, const std::byte* const* rows);

}  // namespace penstock::kernels
