#pragma once

// Launching with programmatic dependence (sm_90): a kernel may start while the one before it in the
// stream still runs, and does what does not depend on it, such as loading old keys and values. Such
// a kernel calls WaitForPrevious (device_math.cuh) before it touches anything that another kernel
// writes or reads. On older cards a plain launch.

#include <cuda_runtime_api.h>

#include <cstddef>

namespace penstock::kernels {

template <typename Params>
cudaError_t LaunchDependent(void (*kernel)(Params), dim3 grid, unsigned threads,
                            size_t shared_bytes, cudaStream_t stream, Params params) {
  int device = 0;
  int major = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = major >= 9 ? 1 : 0;
  void* arguments[] = {&params};
  return cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), arguments);
}

}  // namespace penstock::kernels
