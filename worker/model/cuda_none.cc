// The CUDA runner's door in a build without CUDA.

#include "common/base/status.h"
#include "worker/model/cuda_options.h"

namespace penstock {

absl::Status CheckCudaDevice(int32_t) {
  return Unimplemented("this build has no CUDA runner: build it with nvcc on the PATH");
}

absl::StatusOr<std::unique_ptr<ModelRunner>> CreateCudaRunner(const ModelSpec&, const WeightSource&,
                                                              CudaRunnerOptions) {
  return CheckCudaDevice(0);
}

}  // namespace penstock
