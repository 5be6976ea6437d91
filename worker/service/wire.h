#pragma once

// Between the engine's plain data and the proto. Validation is here: what passes Translate is in
// range, finite and supported.

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/engine/engine.h"
#include "worker/engine/request.h"

namespace penstock {

namespace v1 {
class Finish;
class GenerationParams;
class Load;
class LogprobRecord;
class SessionDown;
class Submit;
}  // namespace v1

inline constexpr int kMaxTopLogprobs = 20;

struct RequestLimits {
  int32_t max_model_len = 0;
  int32_t vocab_size = 0;
  std::vector<int32_t> eos_token_ids;
};

// InvalidArgument or Unimplemented, with the field (FieldOf). The session is left 0.
absl::StatusOr<EngineRequest> Translate(const v1::Submit& submit, const RequestLimits& limits);

// Appends a step's events to the message's columns and records.
void PackEvents(const StepEvents& events, v1::SessionDown* out);
void PackLogprobs(const LogprobEvent& event, v1::LogprobRecord* out);
void PackFinish(const FinishEvent& event, v1::Finish* out);
void PackLoad(const EngineStats& stats, int64_t now_ns, bool draining, v1::Load* out);

inline int64_t SteadyNowNs() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

}  // namespace penstock
