#include "router/api/admission.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"

namespace penstock {
namespace {

// The drain rate is an exponential average over about this many seconds.
constexpr double kWindowSeconds = 10;

}  // namespace

std::optional<ApiError> Admission::Enter(int64_t choices, int64_t tokens, int64_t now_ns) {
  const int64_t requests = requests_.fetch_add(choices) + choices;
  const int64_t queued = tokens_.fetch_add(tokens) + tokens;
  // One request alone always enters, whatever its size.
  const bool alone = requests == choices;
  if (alone || (requests <= limits_.max_requests && queued <= limits_.max_tokens)) {
    return std::nullopt;
  }
  requests_ -= choices;
  tokens_ -= tokens;
  ApiError error{.status = 429, .code = "queue_full", .retry_after_s = RetryAfter(now_ns)};
  error.message = absl::StrFormat(
      "The server is overloaded: %d requests with %d prompt tokens are waiting (limits %d and %d). "
      "Try again in %d seconds.",
      requests - choices, queued - tokens, limits_.max_requests, limits_.max_tokens,
      error.retry_after_s);
  return error;
}

void Admission::Leave(int64_t tokens, bool began, int64_t now_ns) {
  --requests_;
  tokens_ -= tokens;
  if (!began) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  RateLocked(now_ns);
  drained_ += 1;
}

// Choices per second.
double Admission::RateLocked(int64_t now_ns) {
  const double seconds = std::max(0.0, static_cast<double>(now_ns - updated_ns_) * 1e-9);
  drained_ *= std::exp(-seconds / kWindowSeconds);
  updated_ns_ = now_ns;
  return drained_ / kWindowSeconds;
}

int Admission::RetryAfter(int64_t now_ns) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const double rate = RateLocked(now_ns);
  const double seconds = static_cast<double>(requests()) / std::max(rate, 1e-3);
  return static_cast<int>(std::clamp(std::ceil(seconds), 1.0, 60.0));
}

}  // namespace penstock
