#include "router/pool/client_session.h"

#include <atomic>
#include <utility>

#include "common/rpc/rpc_status.h"
#include "router/pool/submit_message.h"

namespace penstock {
namespace {

uint64_t NextSerial() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1);
}

}  // namespace

ClientSession::ClientSession(std::shared_ptr<WorkerLoad> load, std::shared_ptr<Listener> listener)
    : serial_(NextSerial()), load_(std::move(load)), listener_(std::move(listener)) {}

std::shared_ptr<ClientSession> ClientSession::Start(v1::Worker::StubInterface& stub,
                                                    std::shared_ptr<WorkerLoad> load,
                                                    std::shared_ptr<Listener> listener) {
  auto session = std::make_shared<ClientSession>(std::move(load), std::move(listener));
  session->self_ = session;
  stub.async()->Session(&session->call_, session.get());
  session->AddHold();  // for the writes, which start outside of reactions; until the last read
  session->StartRead(&session->down_);
  session->StartCall();
  return session;
}

bool ClientSession::Submit(uint64_t id, const GenerationRequest& request,
                           std::span<const int32_t> emitted, int64_t deadline_ms) {
  v1::SessionUp message;
  FillSubmit(id, request, emitted, deadline_ms, message.mutable_submit());
  return Send(std::move(message));
}

void ClientSession::Cancel(uint64_t id) {
  v1::SessionUp message;
  message.mutable_cancel()->set_request_id(id);
  (void)Send(std::move(message));  // a session that is over has cancelled everything
}

bool ClientSession::Send(v1::SessionUp message) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (over_) return false;
  outbox_.push_back(std::move(message));
  if (outbox_.size() == 1) StartWrite(&outbox_.front());
  return true;
}

void ClientSession::OnWriteDone(bool ok) {
  std::lock_guard<std::mutex> lock(mutex_);
  // Not ok: the stream is broken, and the pending read says so soon.
  if (!ok || over_) return;
  outbox_.pop_front();
  if (!outbox_.empty()) StartWrite(&outbox_.front());
}

void ClientSession::OnReadDone(bool ok) {
  if (ok) {
    listener_->OnMessage(*this, down_);
    StartRead(&down_);
    return;
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    over_ = true;
  }
  RemoveHold();
}

void ClientSession::OnDone(const grpc::Status& status) {
  const std::shared_ptr<ClientSession> self = std::move(self_);
  listener_->OnEnd(*this, FromGrpcStatus(status));
}

}  // namespace penstock
