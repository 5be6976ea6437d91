#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "common/base/status.h"
#include "worker/model/tensor_list.h"
#include "worker/model/weight_source.h"

namespace penstock {
namespace {

// Prime, so that a tensor's rows rarely meet the same place of the pool again.
constexpr size_t kMaxPoolPages = 16381;
constexpr double kStandardDeviation = 0.02;

uint64_t Mix(uint64_t x) {  // splitmix64's finaliser
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Uniform with the wanted deviation.
float RandomWeight(uint64_t seed, uint64_t index) {
  const double unit = static_cast<double>(Mix(seed ^ Mix(index)) >> 11) * 0x1.0p-53;
  return static_cast<float>((2.0 * unit - 1.0) * kStandardDeviation * 1.7320508075688772);
}

uint16_t ToBf16(float value) {  // by truncation: it is random anyway
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>(bits >> 16);
}

// |value| < 1 and far from subnormal halves mattering; truncated. Exact for 0 and 1.
uint16_t ToHalf(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const int exponent = static_cast<int>((bits >> 23) & 0xFF) - 127 + 15;
  if (exponent <= 0) return static_cast<uint16_t>(sign);
  return static_cast<uint16_t>(sign | (static_cast<uint32_t>(exponent) << 10) |
                               ((bits >> 13) & 0x3FFu));
}

void Store(DType dtype, float value, std::byte* out) {
  const uint16_t half = dtype == DType::kF16 ? ToHalf(value) : ToBf16(value);
  if (dtype == DType::kF32) {
    std::memcpy(out, &value, sizeof(value));
  } else {
    std::memcpy(out, &half, sizeof(half));
  }
}

DType DTypeOf(const std::string& name) {
  if (name == "float32" || name == "F32") return DType::kF32;
  if (name == "float16" || name == "F16") return DType::kF16;
  return DType::kBF16;
}

// A small piece of memory mapped again and again, so that a span of any length lies in it.
class RepeatedPool {
 public:
  static absl::StatusOr<std::unique_ptr<RepeatedPool>> Create(size_t period, size_t length) {
    auto pool = std::make_unique<RepeatedPool>();
    pool->length_ = (length / period + 2) * period;
    const int memory = memfd_create("penstock-dummy-weights", MFD_CLOEXEC);
    if (memory < 0 || ftruncate(memory, static_cast<off_t>(period)) != 0) {
      const int error = errno;
      if (memory >= 0) close(memory);
      return ResourceExhausted("cannot get %d bytes for dummy weights: %s", period,
                               std::strerror(error));
    }
    const absl::Status mapped = pool->Map(memory, period);
    close(memory);
    RETURN_IF_ERROR(mapped);
    return pool;
  }
  ~RepeatedPool() {
    if (base_ != nullptr) munmap(base_, length_);
  }
  std::byte* base() const { return base_; }

 private:
  absl::Status Map(int memory, size_t period) {
    void* const reserved =
        mmap(nullptr, length_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) {
      return ResourceExhausted("cannot reserve %d bytes of addresses for dummy weights: %s",
                               length_, std::strerror(errno));
    }
    base_ = static_cast<std::byte*>(reserved);
    for (size_t at = 0; at < length_; at += period) {
      if (mmap(base_ + at, period, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory, 0) ==
          MAP_FAILED) {
        return ResourceExhausted("cannot map dummy weights: %s", std::strerror(errno));
      }
    }
    return absl::OkStatus();
  }

  std::byte* base_ = nullptr;
  size_t length_ = 0;
};

class DummySource : public WeightSource {
 public:
  static absl::StatusOr<std::unique_ptr<WeightSource>> Create(const ModelSpec& spec,
                                                              uint64_t seed) {
    auto source = std::make_unique<DummySource>();
    source->dtype_ = DTypeOf(spec.weights_dtype);
    const auto width = static_cast<size_t>(LayoutOf(source->dtype_).bytes);
    size_t largest = 0;
    size_t norm_elements = 0;
    for (NamedShape& tensor : RequiredTensors(spec)) {
      const std::optional<int64_t> bytes = CheckedBytes(source->dtype_, tensor.shape);
      if (!bytes.has_value()) {
        return InvalidArgument("tensor '%s' of shape %s is too large", tensor.name,
                               ShapeText(tensor.shape));
      }
      largest = std::max(largest, static_cast<size_t>(*bytes));
      if (tensor.is_norm) {
        norm_elements = std::max(norm_elements, static_cast<size_t>(tensor.shape[0]));
      }
      const auto offset = static_cast<size_t>(source->total_bytes_);
      source->total_bytes_ += *bytes;
      const std::string name = tensor.name;
      source->tensors_.emplace(name, Entry{std::move(tensor), offset, static_cast<size_t>(*bytes)});
    }
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t pages = static_cast<size_t>(source->total_bytes_) / page + 1;
    source->period_ = std::min(pages, kMaxPoolPages) * page;
    ASSIGN_OR_RETURN(source->pool_, RepeatedPool::Create(source->period_, largest));
    for (size_t i = 0; i < source->period_ / width; ++i) {
      Store(source->dtype_, RandomWeight(seed, i), source->pool_->base() + i * width);
    }
    source->ones_.resize(norm_elements * width);
    for (size_t i = 0; i < norm_elements; ++i) {
      Store(source->dtype_, 1.0f, source->ones_.data() + i * width);
    }
    return std::unique_ptr<WeightSource>(std::move(source));
  }

  absl::StatusOr<WeightView> Get(std::string_view hf_name) const override {
    const auto it = tensors_.find(hf_name);
    if (it == tensors_.end()) return NotFound("tensor '%s' is not in the dummy model", hf_name);
    const Entry& entry = it->second;
    const std::byte* data =
        entry.tensor.is_norm ? ones_.data() : pool_->base() + entry.offset % period_;
    return WeightView{.dtype = dtype_, .shape = entry.tensor.shape, .data = {data, entry.bytes}};
  }
  bool Has(std::string_view hf_name) const override {
    return tensors_.find(hf_name) != tensors_.end();
  }
  int64_t total_bytes() const override { return total_bytes_; }
  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const auto& [name, entry] : tensors_) names.push_back(name);
    return names;
  }
  std::string Location(std::string_view) const override { return "dummy weights"; }

 private:
  struct Entry {
    NamedShape tensor;
    size_t offset = 0;  // into the endless repetition of the pool
    size_t bytes = 0;
  };

  DType dtype_ = DType::kBF16;
  std::map<std::string, Entry, std::less<>> tensors_;
  std::unique_ptr<RepeatedPool> pool_;
  size_t period_ = 0;
  std::vector<std::byte> ones_;
  int64_t total_bytes_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<WeightSource>> MakeDummySource(const ModelSpec& spec,
                                                              uint64_t seed) {
  return DummySource::Create(spec, seed);
}

}  // namespace penstock
