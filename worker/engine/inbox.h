#pragma once

// Where other threads leave work for the engine thread: new sequences, cancels, sessions. Bounded
// in requests and tokens; also keeps what Submit and Stats must know at once (live ids, counts).
// The one lock of the engine, taken once per turn by its thread.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "worker/engine/engine.h"
#include "worker/engine/sequence.h"

namespace penstock {

// What the engine thread takes out in one turn, in the order in which it must be handled.
struct InboxBatch {
  std::vector<std::pair<uint32_t, std::shared_ptr<EventSink>>> opened;
  std::vector<std::unique_ptr<Sequence>> submitted;
  std::vector<Sequence*> cancelled;  // alive, or ended and not yet reported dead
  std::vector<uint32_t> closed;
  absl::Status abort;  // not OK: end everything with it
};

// What the engine thread brings along.
struct InboxReport {
  std::vector<const Sequence*> dead;  // ended, nothing in flight; freed after the exchange
  int32_t started = 0;                // first starts and ends before a start since the last report
  int64_t started_tokens = 0;
  EngineStats stats;
};

class Inbox {
 public:
  // max_live bounds requests from Submit to death; max_queued_tokens those not started.
  Inbox(size_t max_live, int64_t max_queued_tokens)
      : max_live_(max_live), max_queued_tokens_(max_queued_tokens) {}

  uint32_t Open(std::shared_ptr<EventSink> sink);
  void Close(uint32_t session);
  absl::Status Submit(std::unique_ptr<Sequence> sequence);
  void Cancel(uint32_t session, RequestId id);
  void Abort(absl::Status status);
  void StartDrain();
  bool WaitIdle(std::chrono::nanoseconds timeout);
  EngineStats Stats() const;

  // Engine thread. *batch is overwritten, its storage reused.
  void Exchange(const InboxReport& report, InboxBatch* batch);
  // Engine thread: sleeps until something is there to take, Stop, or the time is over.
  void Wait(std::chrono::nanoseconds timeout);
  void Stop();
  bool stopped() const;

 private:
  struct Key {
    uint32_t session;
    RequestId id;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const {
      return static_cast<size_t>((Value(key.id) ^ key.session) * 0x9E3779B97F4A7C15u);
    }
  };
  struct Live {
    Sequence* sequence;
    bool cancelled;
  };
  bool HasWork() const;

  const size_t max_live_;
  const int64_t max_queued_tokens_;
  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable wake_;
  std::condition_variable idle_;
  InboxBatch next_;
  std::unordered_map<Key, Live, KeyHash> live_;
  std::unordered_map<uint32_t, bool> sessions_;  // registered and not closed
  uint32_t last_session_ = 0;
  uint64_t arrivals_ = 0;
  int32_t queued_ = 0;
  int64_t queued_tokens_ = 0;
  EngineStats stats_;
  bool draining_ = false;
  bool stopped_ = false;
};

}  // namespace penstock
