#include "router/pool/worker_link.h"

#include <grpcpp/channel.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/rpc/channel.h"

namespace penstock {
namespace {

constexpr int kProtocolVersion = 1;
constexpr std::chrono::milliseconds kFirstBackoff{100};
constexpr std::chrono::milliseconds kMaxBackoff{1'000};
constexpr std::chrono::seconds kHelloTimeout{10};

int64_t Milliseconds(WorkerLink::Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

}  // namespace

WorkerLink::WorkerLink(RpcAddress address, const PoolOptions& options,
                       std::weak_ptr<LinkOwner> owner)
    : address_(std::move(address)),
      name_(address_.ToString()),
      options_(options),
      owner_(std::move(owner)),
      stub_(v1::Worker::NewStub(OpenChannel(address_))) {}

void WorkerLink::Tick(Clock::time_point now) {
  bool changed = false;
  bool connect = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (state_ == State::kIdle && now >= next_attempt_ && HasSocketLocked()) {
      state_ = State::kFetching;
      fetching_ = true;
      connect = true;
    } else if (state_ == State::kOpening && now - last_heartbeat_ > kHelloTimeout) {
      session_->Abort();
    } else if (state_ == State::kOpen) {
      changed = JudgeLocked(now);
    }
  }
  if (connect) StartFetch();
  if (const auto owner = changed ? owner_.lock() : nullptr) owner->OnReadyChanged();
}

// A local worker makes its socket when it has loaded the model. Trying before that would only start
// gRPC's backoff, which then delays the moment it is there by up to a second.
bool WorkerLink::HasSocketLocked() {
  if (!address_.is_unix() || access(address_.unix_path.c_str(), F_OK) == 0) return true;
  NoteReasonLocked("there is no socket yet: the worker is still starting, or not running");
  return false;
}

void WorkerLink::NoteReasonLocked(const std::string& reason) {
  if (reason_ != reason) LogWarning("worker unavailable address=%s reason=\"%s\"", name_, reason);
  reason_ = reason;
}

void WorkerLink::StartFetch() {
  const auto owner = owner_.lock();
  if (owner == nullptr) return OnFetched(absl::CancelledError("the pool ended"));
  FetchModel(*stub_, owner->KnownAssets(),
             [self = shared_from_this()](auto model) { self->OnFetched(std::move(model)); });
}

void WorkerLink::OnFetched(absl::StatusOr<FetchedModel> model) {
  absl::Status status = model.status();
  const auto owner = owner_.lock();
  if (status.ok() && owner != nullptr) status = owner->AcceptModel(*model);
  std::lock_guard<std::mutex> lock(mutex_);
  fetching_ = false;
  if (state_ == State::kStopped) return;
  if (!status.ok()) return RetryLaterLocked(std::string(status.message()));
  fingerprint_ = model->info.model_fingerprint();
  max_num_seqs_ = model->info.max_num_seqs();
  state_ = State::kOpening;
  reason_ = "waiting for the worker's hello";
  last_heartbeat_ = Clock::now();
  session_ = ClientSession::Start(*stub_, load_, shared_from_this());
}

void WorkerLink::RetryLaterLocked(const std::string& reason) {
  NoteReasonLocked(reason);
  state_ = State::kIdle;
  ready_ = false;
  backoff_ = std::clamp(backoff_ * 2, kFirstBackoff, kMaxBackoff);
  next_attempt_ = Clock::now() + backoff_;
}

absl::Status WorkerLink::CheckHello(const v1::Hello& hello) const {
  if (hello.protocol_version() != kProtocolVersion) {
    return Unavailable("the worker speaks protocol %d, this router %d: install the same version",
                       hello.protocol_version(), kProtocolVersion);
  }
  if (hello.model_fingerprint() != fingerprint_) {
    return Unavailable("the worker changed its model while connecting");
  }
  return absl::OkStatus();
}

void WorkerLink::OnMessage(ClientSession& session, const v1::SessionDown& message) {
  const auto owner = owner_.lock();
  if (owner == nullptr) return;
  bool changed = false;
  if (message.has_hello() || message.has_heartbeat()) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (&session != session_.get()) return;
    if (message.has_hello()) {
      if (const absl::Status status = CheckHello(message.hello()); !status.ok()) {
        reason_ = std::string(status.message());
        return session.Abort();
      }
      state_ = State::kOpen;
      backoff_ = std::chrono::milliseconds(0);
      ++connects_;
    }
    if (message.has_heartbeat()) TakeLoadLocked(message.heartbeat());
    if (state_ == State::kOpen) changed = JudgeLocked(Clock::now());
  }
  if (changed) owner->OnReadyChanged();
  owner->OnMessage(session.serial(), message);
}

void WorkerLink::TakeLoadLocked(const v1::Load& load) {
  last_heartbeat_ = Clock::now();
  last_.engine_age_ms = load.engine_age_ms();
  last_.steps = load.steps();
  last_.running = load.running();
  last_.waiting = load.waiting();
  last_.total_blocks = load.total_blocks();
  last_.free_blocks = load.free_blocks();
  last_.cached_blocks = load.cached_blocks();
  last_.prefix_queries = load.prefix_queries();
  last_.prefix_hits = load.prefix_hits();
  last_.preemptions = load.preemptions();
  last_.prompt_tokens = load.prompt_tokens();
  last_.generation_tokens = load.generation_tokens();
  last_.waiting_tokens = load.waiting_tokens();
  last_.nonfinite_requests = load.nonfinite_requests();
  last_.draining = load.draining();
}

bool WorkerLink::JudgeLocked(Clock::time_point now) {
  const auto silence = now - last_heartbeat_;
  const bool busy_engine = last_.running + last_.waiting > 0;
  const std::chrono::milliseconds stall(busy_engine ? last_.engine_age_ms : 0);
  std::string reason;
  if (silence > options_.heartbeat_timeout) {
    reason = absl::StrFormat("no heartbeat for %d ms", Milliseconds(silence));
  } else if (stall > options_.engine_stall) {
    reason = absl::StrFormat("the engine has not turned for %d ms with %d requests running",
                             stall.count(), last_.running);
  } else if (last_.draining) {
    reason = "draining";
  }
  if (silence > options_.heartbeat_dead || stall > options_.engine_dead) session_->Abort();
  const bool was_ready = std::exchange(ready_, reason.empty());
  reason_ = std::move(reason);
  if (was_ready == ready_) return false;
  if (ready_) {
    LogInfo("worker ready address=%s", name_);
  } else {
    LogWarning("worker left out address=%s reason=\"%s\"", name_, reason_);
  }
  return true;
}

void WorkerLink::OnEnd(ClientSession& session, const absl::Status& status) {
  bool was_ready = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (&session != session_.get()) return;
    was_ready = ready_;
    const bool was_open = state_ == State::kOpen;
    if (was_open) ++breaks_;
    // The reason why we gave it up says more than "cancelled".
    const bool gave_up = absl::IsCancelled(status) && !reason_.empty();
    const std::string reason = gave_up       ? reason_
                               : status.ok() ? "the worker ended the session"
                                             : std::string(status.message());
    if (state_ != State::kStopped) RetryLaterLocked(reason);
    ready_ = false;
  }
  if (const auto owner = owner_.lock()) {
    if (was_ready) owner->OnReadyChanged();  // first, so that nobody is sent back here
    owner->OnSessionLost(session.serial(),
                         absl::UnavailableError("the worker of this request was lost; try again"));
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (&session == session_.get()) session_.reset();
}

void WorkerLink::Stop() {
  std::lock_guard<std::mutex> lock(mutex_);
  state_ = State::kStopped;
  ready_ = false;
  reason_ = "stopped";
  if (session_ != nullptr) session_->Abort();
  if (fetch_call_ != nullptr) fetch_call_->TryCancel();
}

bool WorkerLink::busy() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return fetching_ || session_ != nullptr;
}

WorkerStatus WorkerLink::Status() const {
  std::lock_guard<std::mutex> lock(mutex_);
  WorkerStatus status = last_;
  status.address = name_;
  status.ready = ready_;
  status.reason = reason_;
  status.in_flight = load_->in_flight.load();
  status.connects = connects_;
  status.breaks = breaks_;
  return status;
}

std::shared_ptr<WorkerPort> WorkerLink::ReadyPort() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return ready_ ? session_ : nullptr;
}

int32_t WorkerLink::max_num_seqs() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return max_num_seqs_;
}

}  // namespace penstock
