#pragma once

// A session's mailbox: the engine thread puts a batch per step, the session's reactor takes all
// that has gathered. One mutex, held for a swap or an append.

#include <cstddef>
#include <functional>
#include <mutex>

#include "worker/engine/engine.h"

namespace penstock {

class Mailbox : public EventSink {
 public:
  // on_ready is called on the engine thread, without the lock, when the box turns from empty to not
  // empty: it tells the reactor to Take soon. It must not block.
  // on_overflow is called once, when more than max_bytes wait: the reader is gone or too slow, and
  // the owner closes its session. Events that come later are dropped.
  Mailbox(size_t max_bytes, std::function<void()> on_ready, std::function<void()> on_overflow);

  void OnEvents(StepEvents* events) override;
  // Swaps out what has gathered (several steps merge; step is the last one's). False when there was
  // nothing. *out is cleared first; its storage is reused for the next batch.
  bool Take(StepEvents* out);

 private:
  const size_t max_bytes_;
  const std::function<void()> on_ready_;
  const std::function<void()> on_overflow_;
  std::mutex mutex_;
  StepEvents gathered_;  // guarded by mutex_
  size_t bytes_ = 0;     // guarded by mutex_
  bool overflowed_ = false;
};

}  // namespace penstock
