#pragma once

#include "kernels/cpu/kernels.h"

namespace penstock::kernels {

const CpuKernels& ScalarKernels();
const CpuKernels& Avx2Kernels();
const CpuKernels& Avx512Kernels();

}  // namespace penstock::kernels
