#pragma once

// Owned GPU memory and page-locked host memory, and CUDA's errors as Status.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/status.h"

namespace penstock {

// what: "a KV cache of 80.0 GB", "copying weights".
inline absl::Status CudaStatus(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  if (error == cudaErrorMemoryAllocation) {
    return ResourceExhausted("out of GPU memory: %s", what);
  }
  return Internal("%s: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
}

// T's memory from Allocate to destruction; its content is undefined.
template <typename T, cudaError_t (*kFree)(void*)>
class CudaArray {
 public:
  CudaArray() = default;
  CudaArray(T* data, size_t size) : data_(data), size_(size) {}
  CudaArray(CudaArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  CudaArray& operator=(CudaArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~CudaArray() {
    if (data_ != nullptr) kFree(data_);
  }
  T* data() const { return data_; }
  size_t size() const { return size_; }
  size_t bytes() const { return size_ * sizeof(T); }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

template <typename T>
using DeviceArray = CudaArray<T, cudaFree>;
template <typename T>
using PinnedArray = CudaArray<T, cudaFreeHost>;

template <typename T>
absl::StatusOr<DeviceArray<T>> AllocateDevice(size_t count, std::string_view what) {
  void* data = nullptr;
  if (count == 0) return DeviceArray<T>();
  RETURN_IF_ERROR(CudaStatus(cudaMalloc(&data, count * sizeof(T)),
                             absl::StrFormat("%s, %d bytes", what, count * sizeof(T))));
  return DeviceArray<T>(static_cast<T*>(data), count);
}

template <typename T>
absl::StatusOr<PinnedArray<T>> AllocatePinned(size_t count, std::string_view what) {
  void* data = nullptr;
  if (count == 0) return PinnedArray<T>();
  RETURN_IF_ERROR(CudaStatus(cudaMallocHost(&data, count * sizeof(T)),
                             absl::StrFormat("%s, %d bytes", what, count * sizeof(T))));
  return PinnedArray<T>(static_cast<T*>(data), count);
}

}  // namespace penstock
