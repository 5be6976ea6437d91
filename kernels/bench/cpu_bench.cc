// Speed of the CPU's linear layers by format, on one thread:
//   cpu_bench [scalar|avx2|avx512]
// GEMV: one row of x, weights from memory (larger than the caches). GEMM: 96 rows of x.
// Prints billions of weights (GEMV) and of multiply-adds (GEMM) a second.

#include <time.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cpu/linear.h"

namespace penstock::kernels {
namespace {

constexpr int64_t kInputs = 1536;
constexpr int64_t kOutputs = 576 * 32;
constexpr int32_t kRows = 96;

// The thread's CPU time: other processes on the machine disturb it less than the clock.
double Now() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// Billions of multiply-adds a second.
double Measure(LinearContext& context, const PackedMatrix& w, int32_t rows) {
  const std::vector<float> x(static_cast<size_t>(rows * kInputs), 0.5f);
  std::vector<float> y(static_cast<size_t>(rows * kOutputs));
  const PackedMatrix* weights[] = {&w};
  double best = 1e30;
  for (int i = 0; i < 10; ++i) {
    const double begin = Now();
    Linear(context, {.weights = weights,
                     .x = x.data(),
                     .x_stride = kInputs,
                     .rows = rows,
                     .y = y.data(),
                     .y_stride = kOutputs});
    const double took = Now() - begin;
    if (took < best) best = took;
  }
  return static_cast<double>(kInputs * kOutputs) * rows / best * 1e-9;
}

int Main(int argc, char** argv) {
  Isa isa = DetectIsa();
  const std::string asked = argc > 1 ? argv[1] : "";
  if (asked == "scalar") isa = Isa::kScalar;
  if (asked == "avx2") isa = Isa::kAvx2;
  if (asked == "avx512") isa = Isa::kAvx512;
  if (!IsaSupported(isa)) {
    std::printf("not supported here: %s\n", asked.c_str());
    return 1;
  }
  ThreadPool pool(1);
  LinearContext context(KernelsFor(isa), pool);
  const char* names[] = {"F32",  "F16",  "BF16", "Q4_0", "Q4_1", "Q5_0",
                         "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"};
  std::printf("# %s, one thread\n%-6s %12s %12s\n", KernelsFor(isa).name, "", "GEMV Gw/s",
              "GEMM Gfma/s");
  for (int f = 0; f <= static_cast<int>(WeightFormat::kQ6_K); ++f) {
    const PackedMatrix w = AllocateMatrix(static_cast<WeightFormat>(f), kOutputs, kInputs);
    for (int64_t i = 0; i < w.bytes(); ++i) w.data.get()[i] = static_cast<uint8_t>(i % 53);
    std::printf("%-6s %12.2f %12.2f\n", names[f], Measure(context, w, 1),
                Measure(context, w, kRows));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace penstock::kernels

int main(int argc, char** argv) { return penstock::kernels::Main(argc, argv); }
