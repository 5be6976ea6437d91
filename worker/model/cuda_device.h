#pragma once

// Which GPU there is, and whether it can be used.

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace penstock {

struct CudaDevice {
  int32_t ordinal = 0;
  std::string name;  // "NVIDIA H200"
  int32_t major = 0;
  int32_t minor = 0;
  int32_t num_multiprocessors = 0;
  int64_t total_bytes = 0;
  std::string Description() const;  // "NVIDIA H200 (sm_90, 141 GB)"
};

// FailedPrecondition says what is missing, with versions: driver, card, capability.
absl::StatusOr<CudaDevice> OpenCudaDevice(int32_t ordinal);

}  // namespace penstock
