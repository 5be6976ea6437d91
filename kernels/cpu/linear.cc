#include "kernels/cpu/linear.h"

#include <algorithm>
#include <cstring>

namespace penstock::kernels {
namespace {

// Rows of one unit of work: all of them when they fit, else even parts.
int32_t RowsPerUnit(int32_t rows) {
  const int32_t parts = (rows + kMaxPanelRows - 1) / kMaxPanelRows;
  return (rows + parts - 1) / parts;
}

// Pieces small enough to balance, large enough that taking one costs nothing beside it.
int64_t Grain(int64_t units, int threads) { return std::max<int64_t>(1, units / (threads * 8)); }

void AddBias(const CpuKernels& kernels, const PackedMatrix& w, int64_t panel, int32_t rows,
             float* c) {
  if (w.bias == nullptr) return;
  for (int32_t r = 0; r < rows; ++r) {
    kernels.add(c + r * kPanel, w.bias.get() + panel * kPanel, c + r * kPanel, kPanel);
  }
}

struct Unit {
  int64_t panel;  // over all matrices
  int32_t first_row;
  int32_t rows;
};

// Row parts are the outer index: threads that work side by side share a part's rows of x.
Unit UnitOf(int64_t index, int64_t panels, int32_t rows, int32_t rows_per_unit) {
  const auto part = static_cast<int32_t>(index / panels);
  const int32_t first = part * rows_per_unit;
  return {index % panels, first, std::min(rows_per_unit, rows - first)};
}

void LinearUnit(LinearContext& context, const LinearParams& p, Unit unit, float* scratch) {
  int64_t column = 0;
  size_t m = 0;
  while (unit.panel >= p.weights[m]->num_panels()) {
    unit.panel -= p.weights[m]->num_panels();
    column += p.weights[m]->num_outputs;
    ++m;
  }
  const PackedMatrix& w = *p.weights[m];
  const CpuKernels& kernels = context.kernels;
  float* c = scratch + kPanelScratchFloats;
  kernels.linear_panel(w, unit.panel, p.x + unit.first_row * p.x_stride, p.x_stride, unit.rows,
                       scratch, c);
  AddBias(kernels, w, unit.panel, unit.rows, c);
  const int64_t width = std::min<int64_t>(kPanel, w.num_outputs - unit.panel * kPanel);
  float* y = p.y + unit.first_row * p.y_stride + column + unit.panel * kPanel;
  for (int32_t r = 0; r < unit.rows; ++r, c += kPanel, y += p.y_stride) {
    if (p.add) {
      kernels.add(y, c, y, width);
    } else {
      std::memcpy(y, c, static_cast<size_t>(width) * sizeof(float));
    }
  }
}

void GatedUnit(LinearContext& context, const GatedLinearParams& p, Unit unit, float* scratch) {
  const CpuKernels& kernels = context.kernels;
  float* gate = scratch + kPanelScratchFloats;
  float* up = gate + LinearContext::kRowsFloats;
  const float* x = p.x + unit.first_row * p.x_stride;
  kernels.linear_panel(*p.gate, unit.panel, x, p.x_stride, unit.rows, scratch, gate);
  kernels.linear_panel(*p.up, unit.panel, x, p.x_stride, unit.rows, scratch, up);
  AddBias(kernels, *p.gate, unit.panel, unit.rows, gate);
  AddBias(kernels, *p.up, unit.panel, unit.rows, up);
  const int64_t width = std::min<int64_t>(kPanel, p.gate->num_outputs - unit.panel * kPanel);
  float* y = p.y + unit.first_row * p.y_stride + unit.panel * kPanel;
  for (int32_t r = 0; r < unit.rows; ++r, y += p.y_stride) {
    kernels.gate(p.activation, gate + r * kPanel, up + r * kPanel, y, width);
  }
}

}  // namespace

LinearContext::LinearContext(const CpuKernels& cpu_kernels, ThreadPool& thread_pool)
    : kernels(cpu_kernels),
      pool(thread_pool),
      scratch_(AllocateFloats(thread_pool.num_threads() * kFloatsPerThread)) {}

void Linear(LinearContext& context, const LinearParams& params) {
  if (params.rows <= 0) return;
  int64_t panels = 0;
  for (const PackedMatrix* w : params.weights) panels += w->num_panels();
  const int32_t per_unit = RowsPerUnit(params.rows);
  const int64_t units = panels * ((params.rows + per_unit - 1) / per_unit);
  context.pool.Run(units, Grain(units, context.pool.num_threads()),
                   [&](int64_t first, int64_t last, int thread) {
                     for (int64_t i = first; i < last; ++i) {
                       LinearUnit(context, params, UnitOf(i, panels, params.rows, per_unit),
                                  context.scratch(thread));
                     }
                   });
}

void GatedLinear(LinearContext& context, const GatedLinearParams& params) {
  if (params.rows <= 0) return;
  const int64_t panels = params.gate->num_panels();
  const int32_t per_unit = RowsPerUnit(params.rows);
  const int64_t units = panels * ((params.rows + per_unit - 1) / per_unit);
  context.pool.Run(units, Grain(units, context.pool.num_threads()),
                   [&](int64_t first, int64_t last, int thread) {
                     for (int64_t i = first; i < last; ++i) {
                       GatedUnit(context, params, UnitOf(i, panels, params.rows, per_unit),
                                 context.scratch(thread));
                     }
                   });
}

}  // namespace penstock::kernels
