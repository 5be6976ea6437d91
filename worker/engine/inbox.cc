#include "worker/engine/inbox.h"

#include "common/base/status.h"

namespace penstock {

uint32_t Inbox::Open(std::shared_ptr<EventSink> sink) {
  std::lock_guard<std::mutex> lock(mutex_);
  const uint32_t session = ++last_session_;
  sessions_.emplace(session, true);
  next_.opened.emplace_back(session, std::move(sink));
  return session;
}

void Inbox::Close(uint32_t session) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (sessions_.erase(session) == 0) return;
    next_.closed.push_back(session);
  }
  wake_.notify_one();
}

absl::Status Inbox::Submit(std::unique_ptr<Sequence> sequence) {
  const int64_t tokens = static_cast<int64_t>(sequence->tokens.size());
  const Key key{sequence->request.session, sequence->request.id};
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stopped_ || draining_) {
      return Unavailable("the worker is shutting down and takes no new requests");
    }
    if (sessions_.count(key.session) == 0) {
      return NotFound("session %d is not registered", key.session);
    }
    if (live_.size() >= max_live_) {
      return ResourceExhausted("the queue is full: %d requests are running or waiting",
                               live_.size());
    }
    if (queued_tokens_ > 0 && queued_tokens_ + tokens > max_queued_tokens_) {
      return ResourceExhausted("the queue is full: %d prompt tokens wait, at most %d may",
                               queued_tokens_, max_queued_tokens_);
    }
    if (!live_.emplace(key, Live{sequence.get(), false}).second) {
      return absl::AlreadyExistsError(
          absl::StrFormat("request_id: %d is running or waiting in this session", Value(key.id)));
    }
    ++queued_;
    queued_tokens_ += tokens;
    sequence->arrival = ++arrivals_;
    next_.submitted.push_back(std::move(sequence));
  }
  wake_.notify_one();
  return absl::OkStatus();
}

void Inbox::Cancel(uint32_t session, RequestId id) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = live_.find(Key{session, id});
    if (it == live_.end() || it->second.cancelled) return;
    it->second.cancelled = true;
    next_.cancelled.push_back(it->second.sequence);
  }
  wake_.notify_one();
}

void Inbox::Abort(absl::Status status) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    next_.abort = std::move(status);
  }
  wake_.notify_one();
}

void Inbox::StartDrain() {
  std::lock_guard<std::mutex> lock(mutex_);
  draining_ = true;
}

bool Inbox::WaitIdle(std::chrono::nanoseconds timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  return idle_.wait_for(lock, timeout, [this] { return live_.empty(); });
}

EngineStats Inbox::Stats() const {
  std::lock_guard<std::mutex> lock(mutex_);
  EngineStats stats = stats_;
  // Requests that the engine thread has not taken in yet wait, too.
  stats.waiting += static_cast<int32_t>(next_.submitted.size());
  stats.waiting_tokens = static_cast<uint64_t>(queued_tokens_);
  stats.draining = draining_;
  return stats;
}

void Inbox::Exchange(const InboxReport& report, InboxBatch* batch) {
  batch->opened.clear();
  batch->submitted.clear();
  batch->cancelled.clear();
  batch->closed.clear();
  batch->abort = absl::OkStatus();
  bool idle = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const Sequence* s : report.dead) live_.erase(Key{s->request.session, s->request.id});
    queued_ -= report.started;
    queued_tokens_ -= report.started_tokens;
    stats_ = report.stats;
    std::swap(next_, *batch);
    idle = !report.dead.empty() && live_.empty();
  }
  if (idle) idle_.notify_all();
}

bool Inbox::HasWork() const {
  return !next_.opened.empty() || !next_.submitted.empty() || !next_.cancelled.empty() ||
         !next_.closed.empty() || !next_.abort.ok();
}

void Inbox::Wait(std::chrono::nanoseconds timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  wake_.wait_for(lock, timeout, [this] { return stopped_ || HasWork(); });
}

void Inbox::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
  }
  wake_.notify_all();
}

bool Inbox::stopped() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return stopped_;
}

}  // namespace penstock
