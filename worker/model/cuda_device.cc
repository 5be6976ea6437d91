#include "worker/model/cuda_device.h"

#include <cuda_runtime_api.h>

#include "worker/model/device_memory.h"
#include "worker/model/memory_report.h"

namespace penstock {
namespace {

// The portable kernels use cp.async and bf16 mma, which begin with Ampere.
constexpr int kMinMajor = 8;

std::string Version(int version) {
  return absl::StrFormat("%d.%d", version / 1000, version % 1000 / 10);
}

absl::Status NoDevice(cudaError_t error, int driver, int runtime) {
  if (driver == 0) {
    return FailedPrecondition("no NVIDIA driver was found: install one that supports CUDA %s",
                              Version(runtime));
  }
  if (driver / 1000 < runtime / 1000) {
    return FailedPrecondition(
        "the NVIDIA driver supports CUDA %s, this build needs CUDA %s: update the driver",
        Version(driver), Version(runtime));
  }
  return FailedPrecondition("no usable NVIDIA GPU: %s (driver for CUDA %s, built with CUDA %s)",
                            cudaGetErrorString(error), Version(driver), Version(runtime));
}

}  // namespace

std::string CudaDevice::Description() const {
  return absl::StrFormat("%s (sm_%d%d, %s)", name, major, minor, BytesText(total_bytes));
}

absl::StatusOr<CudaDevice> OpenCudaDevice(int32_t ordinal) {
  int driver = 0;
  int runtime = 0;
  int count = 0;
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) return NoDevice(error, driver, runtime);
  if (ordinal < 0 || ordinal >= count) {
    return FailedPrecondition("there is no GPU %d: the driver shows %d", ordinal, count);
  }
  cudaDeviceProp properties;
  RETURN_IF_ERROR(CudaStatus(cudaGetDeviceProperties(&properties, ordinal), "looking at the GPU"));
  if (properties.major < kMinMajor) {
    return FailedPrecondition(
        "%s has compute capability %d.%d: Penstock needs 8.0 or newer (Ampere, Ada, Hopper)",
        properties.name, properties.major, properties.minor);
  }
  RETURN_IF_ERROR(CudaStatus(cudaSetDevice(ordinal), "choosing the GPU"));
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  RETURN_IF_ERROR(CudaStatus(cudaMemGetInfo(&free_bytes, &total_bytes), "starting CUDA"));
  return CudaDevice{.ordinal = ordinal,
                    .name = properties.name,
                    .major = properties.major,
                    .minor = properties.minor,
                    .num_multiprocessors = properties.multiProcessorCount,
                    .total_bytes = static_cast<int64_t>(total_bytes)};
}

}  // namespace penstock
