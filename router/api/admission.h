#pragma once

// The bound on work that has not begun: requests (choices) and prompt tokens between their dispatch
// and their first token. Over it a request is refused with a Retry-After from the measured drain
// rate. Any thread.

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "router/api/error_body.h"

namespace penstock {

struct AdmissionLimits {
  int64_t max_requests = 1024;
  int64_t max_tokens = 8 << 20;
};

class Admission {
 public:
  explicit Admission(AdmissionLimits limits) : limits_(limits) {}

  // Counts `choices` with `tokens` prompt tokens in all in, or says why not.
  std::optional<ApiError> Enter(int64_t choices, int64_t tokens, int64_t now_ns);
  // One choice of `tokens` got its first token, or ended without one. began: it was served.
  void Leave(int64_t tokens, bool began, int64_t now_ns);

  int64_t requests() const { return requests_.load(std::memory_order_relaxed); }
  int64_t tokens() const { return tokens_.load(std::memory_order_relaxed); }
  // Seconds until what waits now has drained, by the rate of late; within [1, 60].
  int RetryAfter(int64_t now_ns);
  const AdmissionLimits& limits() const { return limits_; }

 private:
  double RateLocked(int64_t now_ns);

  const AdmissionLimits limits_;
  std::atomic<int64_t> requests_ = 0;
  std::atomic<int64_t> tokens_ = 0;
  std::mutex mutex_;        // guards the rest
  double drained_ = 0;      // choices begun, decayed
  int64_t updated_ns_ = 0;  // when drained_ was decayed last
};

}  // namespace penstock
