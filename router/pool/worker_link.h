#pragma once

// One worker address: connects, learns the model, opens the session, watches its heartbeat, and
// does it all again when the worker is lost. Any thread; nothing blocks.

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "common/rpc/address.h"
#include "router/pool/client_session.h"
#include "router/pool/model_fetch.h"
#include "router/pool/worker_pool.h"

namespace penstock {

// What a link asks of the pool. Called without the link's lock.
class LinkOwner {
 public:
  virtual ~LinkOwner() = default;
  virtual AssetCache KnownAssets() const = 0;
  // Refuses a model that is not the pool's.
  virtual absl::Status AcceptModel(const FetchedModel& model) = 0;
  virtual void OnMessage(uint64_t session, const v1::SessionDown& message) = 0;
  virtual void OnSessionLost(uint64_t session, const absl::Status& status) = 0;
  // A worker became ready or unready.
  virtual void OnReadyChanged() = 0;
};

class WorkerLink final : public ClientSession::Listener,
                         public std::enable_shared_from_this<WorkerLink> {
 public:
  using Clock = std::chrono::steady_clock;

  WorkerLink(RpcAddress address, const PoolOptions& options, std::weak_ptr<LinkOwner> owner);

  // Several times a second: connects when it is time, judges health.
  void Tick(Clock::time_point now);
  // Gives everything up; no new attempt.
  void Stop();
  // Whether a call is still open (after Stop: until its last callback).
  bool busy() const;

  WorkerStatus Status() const;
  const WorkerLoad* load() const { return load_.get(); }
  // The session when the worker may get new requests, else null.
  std::shared_ptr<WorkerPort> ReadyPort() const;
  int32_t max_num_seqs() const;

  void OnMessage(ClientSession& session, const v1::SessionDown& message) override;
  void OnEnd(ClientSession& session, const absl::Status& status) override;

 private:
  enum class State { kIdle, kFetching, kOpening, kOpen, kStopped };

  void StartFetch();
  void OnFetched(absl::StatusOr<FetchedModel> model);
  absl::Status CheckHello(const v1::Hello& hello) const;
  void TakeLoadLocked(const v1::Load& load);
  // Sets ready_ and reason_ from what is known; true when ready_ changed.
  bool JudgeLocked(Clock::time_point now);
  bool HasSocketLocked();
  void NoteReasonLocked(const std::string& reason);  // logs a change
  void RetryLaterLocked(const std::string& reason);

  const RpcAddress address_;
  const std::string name_;
  const PoolOptions options_;
  const std::weak_ptr<LinkOwner> owner_;
  const std::shared_ptr<WorkerLoad> load_ = std::make_shared<WorkerLoad>();
  std::unique_ptr<v1::Worker::StubInterface> stub_;

  mutable std::mutex mutex_;  // guards the rest
  State state_ = State::kIdle;
  std::shared_ptr<ClientSession> session_;
  bool fetching_ = false;                            // a GetModel call is open
  std::shared_ptr<grpc::ClientContext> fetch_call_;  // of the latest one
  bool ready_ = false;
  std::string reason_ = "not connected yet";
  std::string fingerprint_;
  int32_t max_num_seqs_ = 0;
  Clock::time_point next_attempt_;
  std::chrono::milliseconds backoff_{0};
  Clock::time_point last_heartbeat_;
  WorkerStatus last_;  // of the last heartbeat
  uint64_t connects_ = 0;
  uint64_t breaks_ = 0;
};

}  // namespace penstock
