#pragma once

// The gRPC side of one session to one worker. It only moves messages: what comes down goes to the
// listener, what goes up is queued with one write in flight. gRPC's threads call the reactions.

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <deque>
#include <memory>
#include <mutex>

#include "penstock/v1/worker.grpc.pb.h"
#include "router/pool/worker_port.h"

namespace penstock {

class ClientSession final : public grpc::ClientBidiReactor<v1::SessionUp, v1::SessionDown>,
                            public WorkerPort,
                            public std::enable_shared_from_this<ClientSession> {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    // In order, one at a time. The message is reused after the call.
    virtual void OnMessage(ClientSession& session, const v1::SessionDown& message) = 0;
    // Once, after the last message.
    virtual void OnEnd(ClientSession& session, const absl::Status& status) = 0;
  };

  static std::shared_ptr<ClientSession> Start(v1::Worker::StubInterface& stub,
                                              std::shared_ptr<WorkerLoad> load,
                                              std::shared_ptr<Listener> listener);

  uint64_t serial() const override { return serial_; }
  const std::shared_ptr<WorkerLoad>& load() const override { return load_; }
  bool Submit(uint64_t id, const GenerationRequest& request, std::span<const int32_t> emitted,
              int64_t deadline_ms) override;
  void Cancel(uint64_t id) override;
  // Gives the session up: OnEnd follows.
  void Abort() { call_.TryCancel(); }

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  ClientSession(std::shared_ptr<WorkerLoad> load, std::shared_ptr<Listener> listener);

 private:
  bool Send(v1::SessionUp message);

  const uint64_t serial_;
  const std::shared_ptr<WorkerLoad> load_;
  const std::shared_ptr<Listener> listener_;
  std::shared_ptr<ClientSession> self_;  // until OnDone
  grpc::ClientContext call_;
  v1::SessionDown down_;  // reused

  std::mutex mutex_;                  // guards the rest
  std::deque<v1::SessionUp> outbox_;  // the front one is being written
  bool over_ = false;
};

}  // namespace penstock
