#include <immintrin.h>

#include "kernels/cpu/isa_tables.h"
#include "kernels/cpu/kernels.h"

namespace penstock::kernels {
namespace {
#include "kernels/cpu/vec16_avx512.h"
// The order matters: vectors, linear layers, everything else.
#include "kernels/cpu/linear_impl.h"
//
#include "kernels/cpu/elementwise_impl.h"

constexpr CpuKernels kTable = MakeTable("AVX-512");
}  // namespace

const CpuKernels& Avx512Kernels() { return kTable; }

}  // namespace penstock::kernels
