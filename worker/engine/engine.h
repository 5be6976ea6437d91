#pragma once

// The engine: takes requests of token ids, runs them on a ModelRunner, and hands each session one
// batch of events per step.
//
// One thread of its own owns scheduler, KV bookkeeping, sequences and runner. Everything here may
// be called from any thread and never waits for a step. Non-goals: text, JSON, RPC.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/engine/ids.h"
#include "worker/engine/model_runner.h"
#include "worker/engine/request.h"

namespace penstock {

// Takes a session's events. Mailbox (mailbox.h) is the one for a reactor.
class EventSink {
 public:
  virtual ~EventSink() = default;
  // Called by the engine thread: once per engine step that has something for this session, and once
  // when requests were accepted between steps. Must not block and not call the engine. *events may
  // be swapped or moved from; what is left in it is dropped.
  virtual void OnEvents(StepEvents* events) = 0;
};

struct EngineOptions {
  std::string model_fingerprint;       // part of every cached block's identity
  int32_t max_model_len = 0;           // tokens; 0 = the runner's
  int32_t max_num_seqs = 0;            // running at once; 0 = the runner's
  int32_t max_num_batched_tokens = 0;  // tokens of one step; 0 = the runner's
  bool enable_prefix_caching = true;
  int32_t max_queued_requests = 1024;     // that have not started
  int64_t max_queued_tokens = 4'000'000;  // prompt and replayed tokens of those
  int32_t steps_in_flight = kMaxStepsInFlight;
  std::function<int64_t()> now_ns;  // steady clock; null = the real one
  // Called on the engine thread when the runner failed; nobody gets a Finish and the engine does
  // nothing more. null = log and end the process with code 70.
  std::function<void(const absl::Status&)> on_fatal;
};

// What a request may ask for; all > 0.
struct EngineLimits {
  int32_t max_model_len = 0;
  int32_t max_num_seqs = 0;
  int32_t max_num_batched_tokens = 0;
  int32_t prefill_chunk = 0;  // tokens
  int32_t block_size = 0;     // tokens
  int32_t vocab_size = 0;
  int32_t max_queued_requests = 0;
};

class Engine {
 public:
  // Starts the engine thread. InvalidArgument names the option that cannot be.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(EngineOptions options,
                                                        std::unique_ptr<ModelRunner> runner);
  // Stops after the steps in flight. Unfinished requests get no further event.
  ~Engine();

  const RunnerInfo& runner_info() const;
  const EngineLimits& limits() const;

  // The sink gets events until CloseSession has been taken in; it is kept alive until then.
  uint32_t RegisterSession(std::shared_ptr<EventSink> sink);
  // Cancels everything submitted on it. No events follow soon after, not necessarily at once.
  void CloseSession(uint32_t session);

  // request.session names a registered session. When OK, exactly one FinishEvent will come (unless
  // the session closes), after an `accepted` entry. Hashes the prompt's blocks on the caller's
  // thread: about a microsecond per block.
  // InvalidArgument starts with the field's name; AlreadyExists: the id is live in this session;
  // ResourceExhausted: the queue is full; Unavailable: draining; NotFound: no such session.
  absl::Status Submit(EngineRequest request);
  // Idempotent; unknown and finished ids are ignored.
  void Cancel(uint32_t session, RequestId id);

  // As of the engine thread's last turn (at least every 100 ms when idle).
  EngineStats Stats() const;

  // Refuses new requests from now on.
  void StartDrain();
  // Waits until no request is live; false when the time is over first.
  bool WaitIdle(std::chrono::nanoseconds timeout);
  // Ends every live request with reason kError and this status.
  void AbortAll(absl::Status status);

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock
