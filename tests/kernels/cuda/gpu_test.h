#pragma once

// For GPU kernel tests: device buffers with guard bytes, random bf16 data, a run inside a captured
// graph, and an error measure in double. Without a GPU a test skips.

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

namespace penstock::kernels {

#define SKIP_WITHOUT_GPU()                                                                   \
  do {                                                                                       \
    int count_ = 0;                                                                          \
    if (cudaGetDeviceCount(&count_) != cudaSuccess || count_ == 0) GTEST_SKIP() << "no GPU"; \
  } while (0)

#define ASSERT_CUDA_OK(expr)                                                       \
  do {                                                                             \
    const cudaError_t error_ = (expr);                                             \
    ASSERT_EQ(error_, cudaSuccess) << #expr << ": " << cudaGetErrorString(error_); \
  } while (0)
#define EXPECT_CUDA_OK(expr)                                                       \
  do {                                                                             \
    const cudaError_t error_ = (expr);                                             \
    EXPECT_EQ(error_, cudaSuccess) << #expr << ": " << cudaGetErrorString(error_); \
  } while (0)

// Device memory with 256 poisoned bytes on either side; the content starts poisoned as well, so
// that an element nobody wrote shows.
template <typename T>
class DeviceBuffer {
 public:
  static constexpr size_t kGuard = 256;
  static constexpr uint8_t kPoison = 0xA5;

  explicit DeviceBuffer(size_t count) : count_(count) {
    EXPECT_CUDA_OK(cudaMalloc(&raw_, bytes() + 2 * kGuard));
    EXPECT_CUDA_OK(cudaMemset(raw_, kPoison, bytes() + 2 * kGuard));
  }
  explicit DeviceBuffer(const std::vector<T>& values) : DeviceBuffer(values.size()) {
    EXPECT_CUDA_OK(cudaMemcpy(data(), values.data(), bytes(), cudaMemcpyHostToDevice));
  }
  ~DeviceBuffer() {
    EXPECT_TRUE(GuardsIntact()) << "a kernel wrote outside a buffer";
    cudaFree(raw_);
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  T* data() const { return reinterpret_cast<T*>(raw_ + kGuard); }
  size_t bytes() const { return count_ * sizeof(T); }
  void Zero() { EXPECT_CUDA_OK(cudaMemset(data(), 0, bytes())); }
  std::vector<T> Read() const {
    std::vector<T> values(count_);
    EXPECT_CUDA_OK(cudaDeviceSynchronize());
    EXPECT_CUDA_OK(cudaMemcpy(values.data(), data(), bytes(), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  bool GuardsIntact() const {
    std::vector<uint8_t> guard(kGuard);
    for (const size_t offset : {size_t{0}, kGuard + bytes()}) {
      if (cudaMemcpy(guard.data(), raw_ + offset, kGuard, cudaMemcpyDeviceToHost) != cudaSuccess) {
        return false;
      }
      for (const uint8_t byte : guard) {
        if (byte != kPoison) return false;
      }
    }
    return true;
  }
  size_t count_;
  char* raw_ = nullptr;
};

inline std::vector<__nv_bfloat16> RandomBf16(size_t count, uint32_t seed, float scale = 1.0f) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<__nv_bfloat16> values(count);
  for (__nv_bfloat16& value : values) value = __float2bfloat16(normal(engine));
  return values;
}

inline double ToDouble(__nv_bfloat16 value) { return __bfloat162float(value); }

// |out - reference| / |reference| over all elements; NaN when anything is NaN.
template <typename T>
double RelativeError(const std::vector<T>& out, const std::vector<double>& reference) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double value = static_cast<double>(static_cast<float>(out[i]));
    difference += (value - reference[i]) * (value - reference[i]);
    norm += reference[i] * reference[i];
  }
  return std::sqrt(difference / std::max(norm, 1e-300));
}

// bf16 has 8 significant bits: rounding a result once costs up to 2^-8 of it (2^-9 on average).
inline constexpr double kOneRounding = 1.0 / 256;

// Runs launch directly, and again inside a captured graph; both must succeed.
inline void RunPlainAndCaptured(const std::function<cudaError_t(cudaStream_t)>& launch) {
  cudaStream_t stream;
  ASSERT_CUDA_OK(cudaStreamCreate(&stream));
  ASSERT_CUDA_OK(launch(stream));
  ASSERT_CUDA_OK(cudaStreamSynchronize(stream));
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  ASSERT_CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  EXPECT_CUDA_OK(launch(stream));
  ASSERT_CUDA_OK(cudaStreamEndCapture(stream, &graph));
  ASSERT_CUDA_OK(cudaGraphInstantiate(&executable, graph, 0));
  ASSERT_CUDA_OK(cudaGraphLaunch(executable, stream));
  ASSERT_CUDA_OK(cudaStreamSynchronize(stream));
  EXPECT_CUDA_OK(cudaGraphExecDestroy(executable));
  EXPECT_CUDA_OK(cudaGraphDestroy(graph));
  EXPECT_CUDA_OK(cudaStreamDestroy(stream));
}

}  // namespace penstock::kernels
