#include "worker/model/memory_report.h"

#include "absl/strings/str_format.h"

namespace penstock {

std::string Grouped(int64_t number) {
  std::string text = absl::StrFormat("%d", number);
  const size_t first_digit = number < 0 ? 1 : 0;
  for (size_t at = text.size(); at > first_digit + 3;) {
    at -= 3;
    text.insert(at, ",");
  }
  return text;
}

std::string BytesText(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= 1'000'000'000) return absl::StrFormat("%.1f GB", value / 1e9);
  if (bytes >= 1'000'000) return absl::StrFormat("%.0f MB", value / 1e6);
  if (bytes >= 1'000) return absl::StrFormat("%.0f kB", value / 1e3);
  return absl::StrFormat("%d bytes", bytes);
}

MemoryUse ComputeMemoryUse(const ModelSpec& spec, int64_t weight_bytes, int64_t kv_bytes,
                           int kv_element_bytes, int block_size, int32_t max_model_len) {
  MemoryUse use{.weight_bytes = weight_bytes,
                .kv_bytes = kv_bytes,
                .kv_token_bytes = KvBytesPerToken(spec, kv_element_bytes),
                .max_model_len = max_model_len};
  use.kv_tokens = kv_bytes / (use.kv_token_bytes * block_size) * block_size;
  const int64_t one = KvBytesPerSequence(spec, max_model_len, kv_element_bytes, block_size);
  use.full_length_requests = static_cast<double>(kv_bytes) / static_cast<double>(one);
  return use;
}

std::string MemoryText(const MemoryUse& use) {
  return absl::StrFormat(
      "weights %s; KV %s holds %s tokens (%s bytes each): %.1f requests of %s tokens",
      BytesText(use.weight_bytes), BytesText(use.kv_bytes), Grouped(use.kv_tokens),
      Grouped(use.kv_token_bytes), use.full_length_requests, Grouped(use.max_model_len));
}

}  // namespace penstock
