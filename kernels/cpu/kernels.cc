#include "kernels/cpu/kernels.h"

#include <cstdlib>

#include "kernels/cpu/isa_tables.h"

namespace penstock::kernels {

bool IsaSupported(Isa isa) {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  switch (isa) {
    case Isa::kScalar:
      return true;
    case Isa::kAvx2:
      return avx2;
    case Isa::kAvx512:
      return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
  return false;
#else
  return isa == Isa::kScalar;
#endif
}

Isa DetectIsa() {
  if (IsaSupported(Isa::kAvx512)) return Isa::kAvx512;
  if (IsaSupported(Isa::kAvx2)) return Isa::kAvx2;
  return Isa::kScalar;
}

const CpuKernels& KernelsFor(Isa isa) {
  if (!IsaSupported(isa)) std::abort();
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return Avx512Kernels();
  if (isa == Isa::kAvx2) return Avx2Kernels();
#endif
  return ScalarKernels();
}

}  // namespace penstock::kernels
