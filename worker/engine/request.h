#pragma once

// A request as the engine sees it (token ids only), and what it says back. Plain data that crosses
// from the service's threads to the engine thread and back.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/engine/ids.h"
#include "worker/engine/sampling.h"
#include "worker/engine/step.h"

namespace penstock {

struct EngineRequest {
  RequestId id{};
  uint32_t session = 0;  // whose mailbox gets the events
  std::vector<TokenId> prompt_ids;
  std::vector<TokenId> output_ids;  // already emitted elsewhere: replayed, never emitted again
  SamplingParams sampling;
  int32_t max_tokens = 0;        // total output, replayed ids included
  std::vector<TokenId> eos_ids;  // empty with ignore_eos
  std::vector<TokenId> stop_token_ids;
  int32_t adapter_id = -1;
  std::string adapter_identity;  // digest of the adapter's weights; required with adapter_id >= 0
  int32_t priority = 0;          // lower first
  int64_t deadline_ns = 0;       // steady clock; 0 = none
  std::string cache_salt;        // isolates the prefix cache
  uint64_t group_id = 0;         // n choices of one prompt share it; 0 = none
  bool read_prefix_cache = true;
};

enum class FinishReason { kEos, kStopId, kLength, kCancelled, kDeadline, kError };

struct FinishEvent {
  RequestId id{};
  FinishReason reason = FinishReason::kEos;
  TokenId stop_id = -1;  // for kStopId and kEos
  absl::Status status;   // for kError
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;
  int32_t completion_tokens = 0;
  int64_t queue_ns = 0;
  int64_t prefill_ns = 0;
  int64_t decode_ns = 0;
  int32_t preemptions = 0;
};

// With a request's first token.
struct StartEvent {
  RequestId id{};
  int32_t cached_tokens = 0;
  int64_t queue_ns = 0;
  int64_t prefill_ns = 0;
};

struct TokenEvent {
  RequestId id{};
  TokenId token = 0;
  int32_t index = 0;  // position in the request's output
};

struct LogprobEvent {
  RequestId id{};
  int32_t index = 0;
  int32_t rank = 0;
  std::vector<TokenLogprob> logprobs;  // the sampled token first
};

// Everything one engine step has to tell one session, in one batch.
struct StepEvents {
  uint64_t step = 0;
  std::vector<RequestId> accepted;
  std::vector<StartEvent> started;  // their first tokens are in the same batch
  std::vector<TokenEvent> tokens;
  std::vector<LogprobEvent> logprobs;
  std::vector<FinishEvent> finished;

  bool empty() const {
    return accepted.empty() && tokens.empty() && logprobs.empty() && finished.empty();
  }
  void Clear() {
    accepted.clear();
    started.clear();
    tokens.clear();
    logprobs.clear();
    finished.clear();
  }
};

// What Heartbeat reports. Written by the engine thread once a loop, read by anyone.
struct EngineStats {
  int64_t last_loop_ns = 0;  // steady clock of the engine thread's last turn
  uint64_t steps = 0;
  int32_t running = 0;
  int32_t waiting = 0;
  int32_t total_blocks = 0;
  int32_t free_blocks = 0;      // neither used nor cached
  int32_t cached_blocks = 0;    // reusable at once: count as free for usage
  uint64_t prefix_queries = 0;  // tokens looked up
  uint64_t prefix_hits = 0;     // tokens found
  uint64_t preemptions = 0;
  uint64_t prompt_tokens = 0;
  uint64_t generation_tokens = 0;
  uint64_t nonfinite_requests = 0;
  uint64_t waiting_tokens = 0;  // prompt tokens of queued requests
  bool draining = false;
};

}  // namespace penstock
