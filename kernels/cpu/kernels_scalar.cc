#include "kernels/cpu/isa_tables.h"
#include "kernels/cpu/kernels.h"

namespace penstock::kernels {
namespace {
#include "kernels/cpu/vec16_scalar.h"
// The order matters: vectors, linear layers, everything else.
#include "kernels/cpu/linear_impl.h"
//
#include "kernels/cpu/elementwise_impl.h"

constexpr CpuKernels kTable = MakeTable("scalar");
}  // namespace

const CpuKernels& ScalarKernels() { return kTable; }

}  // namespace penstock::kernels
