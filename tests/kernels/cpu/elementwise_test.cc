// Norms, activations, RoPE and sums over a row: against double precision, and the same bits on
// every instruction set, for lengths that do not fill sixteen lanes too.

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu_test.h"
#include "gtest/gtest.h"

namespace penstock::kernels {
namespace {

constexpr int64_t kLengths[] = {1, 15, 16, 17, 64, 100, 577};

// Runs fn on every instruction set, checks that all give the bits of the first, returns them.
template <typename Fn>
std::vector<float> OnAll(size_t count, Fn fn) {
  std::vector<float> expected;
  for (const Isa isa : IsasHere()) {
    std::vector<float> out(count + 1, 7.0f);  // with a guard
    fn(KernelsFor(isa), out.data());
    EXPECT_EQ(out.back(), 7.0f) << KernelsFor(isa).name << " wrote past the end";
    if (expected.empty()) expected = out;
    EXPECT_TRUE(SameBits(out, expected)) << KernelsFor(isa).name;
  }
  expected.pop_back();
  return expected;
}

TEST(ElementwiseTest, RmsNorm) {
  for (const int64_t n : kLengths) {
    const std::vector<float> x = RandomFloats(static_cast<size_t>(n), 1, 3.0f);
    const std::vector<float> w = RandomFloats(static_cast<size_t>(n), 2);
    const std::vector<float> y = OnAll(x.size(), [&](const CpuKernels& k, float* out) {
      k.rms_norm(x.data(), w.data(), out, n, 1e-5f);
    });
    double squares = 0;
    for (const float v : x) squares += static_cast<double>(v) * static_cast<double>(v);
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(n) + 1e-5);
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = static_cast<double>(x[i]) * scale * static_cast<double>(w[i]);
      ASSERT_NEAR(y[i], expected, 1e-6 * std::abs(expected) + 1e-30);
    }
  }
}

TEST(ElementwiseTest, Activations) {
  std::vector<float> gate = RandomFloats(577, 3, 4.0f);
  gate[0] = 100.0f;
  gate[1] = -100.0f;
  gate[2] = 0.0f;
  const std::vector<float> up = RandomFloats(577, 4);
  const auto expected = [](GateActivation a, double x) {
    if (a == GateActivation::kSilu) return x / (1 + std::exp(-x));
    if (a == GateActivation::kGelu) return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  };
  for (const auto a : {GateActivation::kSilu, GateActivation::kGeluTanh, GateActivation::kGelu}) {
    const std::vector<float> y = OnAll(gate.size(), [&](const CpuKernels& k, float* out) {
      k.gate(a, gate.data(), up.data(), out, 577);
    });
    for (size_t i = 0; i < gate.size(); ++i) {
      const double x = static_cast<double>(gate[i]);
      ASSERT_NEAR(y[i], expected(a, x) * static_cast<double>(up[i]),
                  1e-6 * (1 + std::abs(x * static_cast<double>(up[i]))))
          << gate[i];
    }
  }
}

TEST(ElementwiseTest, RopeRotatesHalvesAndKeepsTheRest) {
  for (const int32_t rotary : {64, 32, 20}) {
    for (const bool norm : {false, true}) {
      const std::vector<float> in = RandomFloats(64, 5);
      const std::vector<float> weight = RandomFloats(64, 6);
      std::vector<float> cos, sin;
      for (int32_t i = 0; i < rotary / 2; ++i) {
        cos.push_back(std::cos(0.1f * static_cast<float>(i)));
        sin.push_back(std::sin(0.1f * static_cast<float>(i)));
      }
      const std::vector<float> y = OnAll(64, [&](const CpuKernels& k, float* out) {
        k.rope_head({.in = in.data(),
                     .norm = norm ? weight.data() : nullptr,
                     .cos = cos.data(),
                     .sin = sin.data(),
                     .eps = 1e-6f,
                     .head_dim = 64,
                     .rotary_dim = rotary,
                     .scale = 0.125f,
                     .out = out});
      });
      std::vector<double> x(in.begin(), in.end());
      double squares = 0;
      for (const double v : x) squares += v * v;
      for (size_t i = 0; norm && i < 64; ++i) {
        x[i] *= static_cast<double>(weight[i]) / std::sqrt(squares / 64 + 1e-6);
      }
      const size_t half = static_cast<size_t>(rotary) / 2;
      for (size_t i = 0; i < 64; ++i) {
        double expected = x[i];
        if (i < half) expected = x[i] * cos[i] - x[i + half] * sin[i];
        if (i >= half && i < 2 * half)
          expected = x[i] * cos[i - half] + x[i - half] * sin[i - half];
        ASSERT_NEAR(y[i], expected * 0.125, 1e-6) << i;
      }
    }
  }
}

TEST(ElementwiseTest, ExpSumAndLargest) {
  for (const int64_t n : kLengths) {
    const std::vector<float> x = RandomFloats(static_cast<size_t>(n), 8, 5.0f);
    const std::vector<float> y = OnAll(x.size() + 2, [&](const CpuKernels& k, float* out) {
      bool finite = false;
      out[n + 1] = k.max_finite(x.data(), n, &finite);
      EXPECT_TRUE(finite);
      out[n] = k.exp_sum(x.data(), out[n + 1], 0.5f, out, n);
    });
    const float largest = *std::max_element(x.begin(), x.end());
    EXPECT_EQ(y[static_cast<size_t>(n) + 1], largest);
    double total = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double e = std::exp((static_cast<double>(x[i]) - static_cast<double>(largest)) * 0.5);
      ASSERT_NEAR(y[i], e, 1e-6 * e);
      total += e;
    }
    EXPECT_NEAR(y[static_cast<size_t>(n)], total, 1e-5 * total);
  }
}

TEST(ElementwiseTest, NonFiniteValuesAreSeenAnywhere) {
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(),
                       std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity()};
  for (const Isa isa : IsasHere()) {
    for (const int64_t n : kLengths) {
      for (const float value : bad) {
        for (const int64_t at : {int64_t{0}, n / 2, n - 1}) {
          std::vector<float> x = RandomFloats(static_cast<size_t>(n), 9);
          x[static_cast<size_t>(at)] = value;
          bool finite = true;
          KernelsFor(isa).max_finite(x.data(), n, &finite);
          EXPECT_FALSE(finite) << KernelsFor(isa).name << " n " << n << " at " << at;
        }
      }
    }
  }
}

}  // namespace
}  // namespace penstock::kernels
