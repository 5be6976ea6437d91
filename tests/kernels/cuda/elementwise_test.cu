// RMSNorm, gated activation, embedding and GEMV against double references.

#include <gtest/gtest.h>

#include "kernels/cuda/activation.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/skinny_gemm.h"
#include "tests/kernels/cuda/gpu_test.h"

namespace penstock::kernels {
namespace {

struct RmsCase {
  int rows;
  int hidden;
  int extra_stride;
  bool residual;
};

class RmsNormTest : public ::testing::TestWithParam<RmsCase> {};

TEST_P(RmsNormTest, MatchesTheReference) {
  SKIP_WITHOUT_GPU();
  const RmsCase c = GetParam();
  const int stride = c.hidden + c.extra_stride;
  const auto x = RandomBf16(static_cast<size_t>(c.rows) * stride, 1);
  const auto residual = RandomBf16(static_cast<size_t>(c.rows) * c.hidden, 2);
  const auto weight = RandomBf16(c.hidden, 3);
  std::vector<double> expected(residual.size());
  std::vector<double> expected_residual(residual.size());
  for (int r = 0; r < c.rows; ++r) {
    double sum = 0;
    std::vector<double> row(c.hidden);
    for (int i = 0; i < c.hidden; ++i) {
      double value = ToDouble(x[static_cast<size_t>(r) * stride + i]);
      if (c.residual) {
        value = ToDouble(__float2bfloat16(
            static_cast<float>(value + ToDouble(residual[static_cast<size_t>(r) * c.hidden + i]))));
        expected_residual[static_cast<size_t>(r) * c.hidden + i] = value;
      }
      row[i] = value;
      sum += value * value;
    }
    const double scale = 1 / std::sqrt(sum / c.hidden + 1e-5);
    for (int i = 0; i < c.hidden; ++i) {
      expected[static_cast<size_t>(r) * c.hidden + i] = row[i] * scale * ToDouble(weight[i]);
    }
  }
  DeviceBuffer<__nv_bfloat16> dx(x);
  DeviceBuffer<__nv_bfloat16> dw(weight);
  DeviceBuffer<__nv_bfloat16> out(residual.size());
  DeviceBuffer<__nv_bfloat16> dr(residual);
  const RmsNormParams params = {.x = dx.data(),
                                .residual = c.residual ? dr.data() : nullptr,
                                .weight = dw.data(),
                                .out = out.data(),
                                .x_stride = stride,
                                .num_rows = c.rows,
                                .hidden = c.hidden,
                                .eps = 1e-5f};
  ASSERT_CUDA_OK(LaunchRmsNorm(params, nullptr));
  EXPECT_LT(RelativeError(out.Read(), expected), kOneRounding);
  if (c.residual) {
    EXPECT_LT(RelativeError(dr.Read(), expected_residual), 1e-7);
  } else {
    RunPlainAndCaptured([&](cudaStream_t stream) { return LaunchRmsNorm(params, stream); });
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, RmsNormTest,
                         ::testing::Values(RmsCase{1, 4096, 0, false}, RmsCase{3, 576, 0, true},
                                           RmsCase{7, 8, 8, false}, RmsCase{256, 4096, 0, true},
                                           RmsCase{2, 16384, 64, true}, RmsCase{5, 5120, 0, true}));

TEST(RmsNorm, RefusesWhatItCannotDo) {
  RmsNormParams params = {.num_rows = 1, .hidden = 12};
  EXPECT_EQ(LaunchRmsNorm(params, nullptr), cudaErrorInvalidValue);
  params.hidden = 16392;
  EXPECT_EQ(LaunchRmsNorm(params, nullptr), cudaErrorInvalidValue);
  params.num_rows = 0;
  EXPECT_EQ(LaunchRmsNorm(params, nullptr), cudaSuccess);
}

TEST(GateUp, MatchesTheReference) {
  SKIP_WITHOUT_GPU();
  for (const auto activation :
       {GateActivation::kSilu, GateActivation::kGeluTanh, GateActivation::kGelu}) {
    for (const auto& [rows, size] : {std::pair{1, 14336}, {3, 1536}, {65, 8}}) {
      const auto in = RandomBf16(static_cast<size_t>(rows) * 2 * size, 4, 2.0f);
      std::vector<double> expected(static_cast<size_t>(rows) * size);
      for (size_t i = 0; i < expected.size(); ++i) {
        const size_t row = i / size;
        const double g = ToDouble(in[row * 2 * size + i % size]);
        const double u = ToDouble(in[row * 2 * size + size + i % size]);
        double a = g / (1 + std::exp(-g));
        if (activation == GateActivation::kGelu) a = 0.5 * g * (1 + std::erf(g / std::sqrt(2.0)));
        if (activation == GateActivation::kGeluTanh) {
          a = 0.5 * g * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g)));
        }
        expected[i] = a * u;
      }
      DeviceBuffer<__nv_bfloat16> din(in);
      DeviceBuffer<__nv_bfloat16> out(expected.size());
      const GateUpParams params = {.gate_up = din.data(),
                                   .out = out.data(),
                                   .num_rows = rows,
                                   .size = size,
                                   .activation = activation};
      RunPlainAndCaptured([&](cudaStream_t stream) { return LaunchGateUp(params, stream); });
      EXPECT_LT(RelativeError(out.Read(), expected), kOneRounding);
    }
  }
}

TEST(Embedding, GathersRowsAndIgnoresWildIds) {
  SKIP_WITHOUT_GPU();
  const int vocab = 100;
  const int hidden = 576;
  const auto table = RandomBf16(static_cast<size_t>(vocab) * hidden, 5);
  const std::vector<int32_t> ids = {0, 99, 7, 7, -1, 100};
  DeviceBuffer<__nv_bfloat16> dtable(table);
  DeviceBuffer<int32_t> dids(ids);
  DeviceBuffer<__nv_bfloat16> out(ids.size() * hidden);
  const EmbeddingParams params = {.ids = dids.data(),
                                  .table = dtable.data(),
                                  .out = out.data(),
                                  .num_tokens = static_cast<int32_t>(ids.size()),
                                  .vocab_size = vocab,
                                  .hidden = hidden};
  RunPlainAndCaptured([&](cudaStream_t stream) { return LaunchEmbedding(params, stream); });
  const auto got = out.Read();
  for (size_t i = 0; i < got.size(); ++i) {
    const int32_t id = ids[i / hidden] >= 0 && ids[i / hidden] < vocab ? ids[i / hidden] : 0;
    ASSERT_EQ(ToDouble(got[i]), ToDouble(table[static_cast<size_t>(id) * hidden + i % hidden]));
  }
}

struct LinearCase {
  int in_size;
  int out_size;
  int rows;
};

// Runs launch(x, weight, bias, residual, out, out_f32) and compares both kinds of output.
template <typename Params>
void CheckLinear(const LinearCase& c, cudaError_t (*launch)(const Params&, cudaStream_t)) {
  const auto x = RandomBf16(static_cast<size_t>(c.rows) * c.in_size, 6);
  const auto weight = RandomBf16(static_cast<size_t>(c.out_size) * c.in_size, 7, 0.05f);
  const auto bias = RandomBf16(c.out_size, 8);
  const auto residual = RandomBf16(static_cast<size_t>(c.rows) * c.out_size, 9);
  std::vector<double> expected(static_cast<size_t>(c.rows) * c.out_size);
  for (int r = 0; r < c.rows; ++r) {
    for (int o = 0; o < c.out_size; ++o) {
      double sum = ToDouble(bias[o]) + ToDouble(residual[static_cast<size_t>(r) * c.out_size + o]);
      for (int i = 0; i < c.in_size; ++i) {
        sum += ToDouble(x[static_cast<size_t>(r) * c.in_size + i]) *
               ToDouble(weight[static_cast<size_t>(o) * c.in_size + i]);
      }
      expected[static_cast<size_t>(r) * c.out_size + o] = sum;
    }
  }
  DeviceBuffer<__nv_bfloat16> dx(x);
  DeviceBuffer<__nv_bfloat16> dw(weight);
  DeviceBuffer<__nv_bfloat16> db(bias);
  DeviceBuffer<__nv_bfloat16> dr(residual);
  DeviceBuffer<__nv_bfloat16> out(expected.size());
  DeviceBuffer<float> out_f32(expected.size());
  Params params = {.x = dx.data(),
                   .weight = dw.data(),
                   .bias = db.data(),
                   .residual = dr.data(),
                   .out = out.data(),
                   .num_rows = c.rows,
                   .in_size = c.in_size,
                   .out_size = c.out_size};
  RunPlainAndCaptured([&](cudaStream_t stream) { return launch(params, stream); });
  EXPECT_LT(RelativeError(out.Read(), expected), kOneRounding) << c.in_size << " " << c.rows;
  params.out = nullptr;
  params.out_f32 = out_f32.data();
  ASSERT_CUDA_OK(launch(params, nullptr));
  // f32 sums of in_size exact products of bf16 pairs.
  EXPECT_LT(RelativeError(out_f32.Read(), expected), 1e-5) << c.in_size << " " << c.rows;
}

TEST(Gemv, MatchesTheReferenceForEveryRowCount) {
  SKIP_WITHOUT_GPU();
  for (const auto& [in_size, out_size] : {std::pair{4096, 517}, {576, 1536}, {8, 3}, {1032, 64}}) {
    for (int rows = 1; rows <= kMaxGemvRows; ++rows) {
      CheckLinear<GemvParams>({in_size, out_size, rows}, LaunchGemv);
    }
  }
}

TEST(SkinnyGemm, MatchesTheReference) {
  SKIP_WITHOUT_GPU();
  for (const auto& [in_size, out_size] : {std::pair{4096, 517}, {576, 1536}, {32, 3}, {1056, 64}}) {
    for (const int rows : {1, 2, 7, 8, 9, 16, 17, 32, 33, 64}) {
      CheckLinear<SkinnyGemmParams>({in_size, out_size, rows}, LaunchSkinnyGemm);
    }
  }
}

TEST(SkinnyGemm, RefusesWhatItCannotDo) {
  EXPECT_EQ(LaunchSkinnyGemm({.num_rows = 65, .in_size = 64, .out_size = 8}, nullptr),
            cudaErrorInvalidValue);
  EXPECT_EQ(LaunchSkinnyGemm({.num_rows = 1, .in_size = 40, .out_size = 8}, nullptr),
            cudaErrorInvalidValue);
}

}  // namespace
}  // namespace penstock::kernels
