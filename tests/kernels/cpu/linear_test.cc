// Packed linear layers against the formats' own dequantisation, and the same bits for every
// instruction set, number of rows and number of threads.

#include "kernels/cpu/linear.h"

#include <cmath>

#include "common/formats/dequantize.h"
#include "cpu_test.h"
#include "gtest/gtest.h"

namespace penstock::kernels {
namespace {

struct FormatCase {
  WeightFormat format;
  DType dtype;
};
const FormatCase kCases[] = {
    {WeightFormat::kF32, DType::kF32},   {WeightFormat::kF16, DType::kF16},
    {WeightFormat::kBF16, DType::kBF16}, {WeightFormat::kQ4_0, DType::kQ4_0},
    {WeightFormat::kQ4_1, DType::kQ4_1}, {WeightFormat::kQ5_0, DType::kQ5_0},
    {WeightFormat::kQ5_1, DType::kQ5_1}, {WeightFormat::kQ8_0, DType::kQ8_0},
    {WeightFormat::kQ4_K, DType::kQ4_K}, {WeightFormat::kQ5_K, DType::kQ5_K},
    {WeightFormat::kQ6_K, DType::kQ6_K},
};

// A matrix in the file's form: random bytes, with scales that are sane half-precision numbers.
struct StoredMatrix {
  std::vector<std::byte> bytes;
  std::vector<float> values;  // dequantised, [outputs, inputs]
  int64_t row_bytes = 0;
};

void PutScale(std::byte* at, std::mt19937& random) {
  // Exponent 8 to 13: 2^-7 .. 2^-2, random mantissa and sign.
  const uint32_t bits = (random() % 2) << 15 | (8 + random() % 6) << 10 | random() % 1024;
  const auto half = static_cast<uint16_t>(bits);
  std::memcpy(at, &half, 2);
}

StoredMatrix MakeMatrix(const FormatCase& c, int64_t outputs, int64_t inputs, uint32_t seed) {
  std::mt19937 random(seed);
  const FormatBlock block = BlockOf(c.format);
  StoredMatrix m;
  m.row_bytes = inputs / block.values * block.bytes;
  m.bytes.resize(static_cast<size_t>(outputs * m.row_bytes));
  for (std::byte& b : m.bytes) b = static_cast<std::byte>(random());
  for (size_t at = 0; at < m.bytes.size(); at += static_cast<size_t>(block.bytes)) {
    std::byte* p = m.bytes.data() + at;
    switch (c.format) {
      case WeightFormat::kF32: {
        const float value = static_cast<float>(random() % 2000) * 1e-3f - 1.0f;
        std::memcpy(p, &value, 4);
        break;
      }
      case WeightFormat::kF16:
        PutScale(p, random);
        break;
      case WeightFormat::kBF16: {
        const auto value = static_cast<uint16_t>((random() % 2) << 15 | (0x3E00 + random() % 256));
        std::memcpy(p, &value, 2);
        break;
      }
      case WeightFormat::kQ6_K:
        PutScale(p + 208, random);
        break;
      case WeightFormat::kQ4_0:
      case WeightFormat::kQ5_0:
      case WeightFormat::kQ8_0:
        PutScale(p, random);
        break;
      default:
        PutScale(p, random);
        PutScale(p + 2, random);
    }
  }
  m.values.resize(static_cast<size_t>(outputs * inputs));
  Dequantize(c.dtype, m.bytes, m.values);
  return m;
}

PackedMatrix Pack(const FormatCase& c, const StoredMatrix& m, int64_t outputs, int64_t inputs) {
  PackedMatrix packed = AllocateMatrix(c.format, outputs, inputs);
  for (int64_t panel = 0; panel < packed.num_panels(); ++panel) {
    const std::byte* rows[kPanel] = {};
    for (int64_t i = 0; i < kPanel && panel * kPanel + i < outputs; ++i) {
      rows[i] = m.bytes.data() + (panel * kPanel + i) * m.row_bytes;
    }
    PackPanel(packed, panel, rows);
  }
  return packed;
}

std::vector<float> RunLinear(Isa isa, int threads, const PackedMatrix& w,
                             const std::vector<float>& x, int32_t rows, bool add = false) {
  ThreadPool pool(threads);
  LinearContext context(KernelsFor(isa), pool);
  const PackedMatrix* weights[] = {&w};
  // One more row than needed, as a guard.
  std::vector<float> y(static_cast<size_t>((rows + 1) * w.num_outputs), 7.0f);
  Linear(context, {.weights = weights,
                   .x = x.data(),
                   .x_stride = w.num_inputs,
                   .rows = rows,
                   .y = y.data(),
                   .y_stride = w.num_outputs,
                   .add = add});
  for (int64_t i = 0; i < w.num_outputs; ++i) {
    EXPECT_EQ(y[static_cast<size_t>(rows * w.num_outputs + i)], 7.0f);
  }
  y.resize(static_cast<size_t>(rows * w.num_outputs));
  return y;
}

class LinearFormats : public ::testing::TestWithParam<FormatCase> {};

TEST_P(LinearFormats, DequantizedPanelsAreTheFormatsValuesToTheBit) {
  const int64_t outputs = 50;
  const int64_t inputs = 768;
  const StoredMatrix m = MakeMatrix(GetParam(), outputs, inputs, 1);
  const PackedMatrix packed = Pack(GetParam(), m, outputs, inputs);
  for (const Isa isa : IsasHere()) {
    std::vector<float> tile(static_cast<size_t>(kTileInputs * kPanel));
    for (int64_t panel = 0; panel < packed.num_panels(); ++panel) {
      for (int64_t k0 = 0; k0 < inputs; k0 += kTileInputs) {
        KernelsFor(isa).dequantize_panel(packed, panel, k0, k0 + kTileInputs, tile.data());
        for (int64_t k = 0; k < kTileInputs; ++k) {
          for (int64_t i = 0; i < kPanel; ++i) {
            const int64_t output = panel * kPanel + i;
            const float expected =
                output < outputs ? m.values[static_cast<size_t>(output * inputs + k0 + k)] : 0.0f;
            ASSERT_EQ(tile[static_cast<size_t>(k * kPanel + i)], expected)
                << KernelsFor(isa).name << " output " << output << " input " << k0 + k;
          }
        }
      }
    }
  }
}

TEST_P(LinearFormats, ProductsMatchDoublePrecision) {
  const int64_t outputs = 70;
  const int64_t inputs = 512;
  const int32_t rows = 7;
  const StoredMatrix m = MakeMatrix(GetParam(), outputs, inputs, 2);
  const PackedMatrix packed = Pack(GetParam(), m, outputs, inputs);
  const std::vector<float> x = RandomFloats(static_cast<size_t>(rows * inputs), 3);
  for (const Isa isa : IsasHere()) {
    const std::vector<float> y = RunLinear(isa, 1, packed, x, rows);
    for (int32_t r = 0; r < rows; ++r) {
      for (int64_t n = 0; n < outputs; ++n) {
        double sum = 0;
        double magnitude = 0;
        for (int64_t k = 0; k < inputs; ++k) {
          const double term = static_cast<double>(x[static_cast<size_t>(r * inputs + k)]) *
                              static_cast<double>(m.values[static_cast<size_t>(n * inputs + k)]);
          sum += term;
          magnitude += std::abs(term);
        }
        // One rounding per input, each at most half a unit of the running sum.
        const double tolerance = 0x1p-24 * static_cast<double>(inputs) * magnitude;
        ASSERT_NEAR(y[static_cast<size_t>(r * outputs + n)], sum, tolerance)
            << KernelsFor(isa).name << " row " << r << " output " << n;
      }
    }
  }
}

TEST_P(LinearFormats, BitsDoNotDependOnWidthRowsOrThreads) {
  const int64_t outputs = 100;  // no whole number of panels
  const int64_t inputs = 768;
  const int32_t rows = 97;  // more than one unit of work holds
  const StoredMatrix m = MakeMatrix(GetParam(), outputs, inputs, 4);
  const PackedMatrix packed = Pack(GetParam(), m, outputs, inputs);
  const std::vector<float> x = RandomFloats(static_cast<size_t>(rows * inputs), 5);
  const std::vector<float> expected = RunLinear(IsasHere().back(), 1, packed, x, rows);
  for (const Isa isa : IsasHere()) {
    for (const int32_t count : {1, 2, 3, 5, 12, 13, 32}) {
      const std::vector<float> part(x.begin(), x.begin() + count * inputs);
      const std::vector<float> first(expected.begin(), expected.begin() + count * outputs);
      EXPECT_TRUE(SameBits(RunLinear(isa, 1 + count % 3, packed, part, count), first))
          << KernelsFor(isa).name << " rows " << count;
    }
  }
  EXPECT_TRUE(SameBits(RunLinear(DetectIsa(), 3, packed, x, rows), expected));
}

INSTANTIATE_TEST_SUITE_P(AllFormats, LinearFormats, ::testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(DTypeName(test.param.dtype)); });

TEST(LinearTest, SeveralMatricesBiasAndAdding) {
  const FormatCase c = kCases[7];  // Q8_0
  const StoredMatrix a = MakeMatrix(c, 64, 64, 6);
  const StoredMatrix b = MakeMatrix(c, 40, 64, 7);
  PackedMatrix first = Pack(c, a, 64, 64);
  PackedMatrix second = Pack(c, b, 40, 64);
  const std::vector<float> x = RandomFloats(3 * 64, 8);
  const std::vector<float> y1 = RunLinear(DetectIsa(), 1, first, x, 3);
  const std::vector<float> y2 = RunLinear(DetectIsa(), 1, second, x, 3);
  second.bias = AllocateFloats(64);
  for (int i = 0; i < 40; ++i) second.bias.get()[i] = static_cast<float>(i);
  ThreadPool pool(2);
  LinearContext context(KernelsFor(DetectIsa()), pool);
  const PackedMatrix* weights[] = {&first, &second};
  std::vector<float> y(3 * 104, 1.0f);
  Linear(context, {.weights = weights,
                   .x = x.data(),
                   .x_stride = 64,
                   .rows = 3,
                   .y = y.data(),
                   .y_stride = 104,
                   .add = true});
  for (size_t r = 0; r < 3; ++r) {
    for (size_t n = 0; n < 104; ++n) {
      const float product =
          n < 64 ? y1[r * 64 + n] : y2[r * 40 + n - 64] + static_cast<float>(n - 64);
      ASSERT_EQ(y[r * 104 + n], 1.0f + product) << r << " " << n;
    }
  }
}

}  // namespace
}  // namespace penstock::kernels
