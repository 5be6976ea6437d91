#pragma once

// Linear layers spread over a thread pool. Work is cut by panel (32 outputs) and by rows; how it is
// cut never changes the bits.

#include <cstdint>
#include <span>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/thread_pool.h"

namespace penstock::kernels {

// What the linear layers need besides their operands: kernels, threads and scratch per thread.
class LinearContext {
 public:
  LinearContext(const CpuKernels& cpu_kernels, ThreadPool& thread_pool);
  const CpuKernels& kernels;
  ThreadPool& pool;
  float* scratch(int thread) { return scratch_.get() + thread * kFloatsPerThread; }

  static constexpr int64_t kRowsFloats = static_cast<int64_t>(kMaxPanelRows) * kPanel;
  static constexpr int64_t kFloatsPerThread = kPanelScratchFloats + 2 * kRowsFloats;

 private:
  std::unique_ptr<float, FreeDeleter> scratch_;
};

struct LinearParams {
  // Matrices over the same input (q, k and v), whose outputs lie one after another in y.
  std::span<const PackedMatrix* const> weights;
  const float* x = nullptr;  // [rows, x_stride]
  int64_t x_stride = 0;
  int32_t rows = 0;
  float* y = nullptr;  // [rows, y_stride]
  int64_t y_stride = 0;
  bool add = false;  // y += instead of y =
};
// Each matrix but the last has a multiple of 32 outputs, or its successor begins where it ends all
// the same. y holds exactly the outputs; nothing past them is written.
void Linear(LinearContext& context, const LinearParams& params);

struct GatedLinearParams {
  const PackedMatrix* gate = nullptr;
  const PackedMatrix* up = nullptr;  // the same shape
  GateActivation activation = GateActivation::kSilu;
  const float* x = nullptr;
  int64_t x_stride = 0;
  int32_t rows = 0;
  float* y = nullptr;  // [rows, y_stride] = act(x * gate) * (x * up)
  int64_t y_stride = 0;
};
void GatedLinear(LinearContext& context, const GatedLinearParams& params);

}  // namespace penstock::kernels
