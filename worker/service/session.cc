#include "worker/service/session.h"

#include <utility>

#include "common/base/status.h"
#include "common/rpc/rpc_status.h"
#include "worker/service/wire.h"

namespace penstock {
namespace {

constexpr size_t kMaxMailboxBytes = 64 << 20;

}  // namespace

Session::Session(ServiceContext& context, grpc::CallbackServerContext* call)
    : context_(context), call_(call) {}

grpc::ServerBidiReactor<v1::SessionUp, v1::SessionDown>* Session::Start(
    ServiceContext& context, grpc::CallbackServerContext* call) {
  auto session = std::make_shared<Session>(context, call);
  session->self_ = session;
  session->Open();
  return session.get();
}

void Session::Open() {
  const std::weak_ptr<Session> weak = weak_from_this();
  mailbox_ = std::make_shared<Mailbox>(
      kMaxMailboxBytes,
      [weak, writer = context_.writer] {
        writer->Post([weak] {
          if (const auto session = weak.lock()) session->Write();
        });
      },
      [weak] {
        // A write may be stuck on the reader that does not read: only breaking the call frees it.
        if (const auto session = weak.lock()) session->Break();
      });
  engine_session_ = context_.engine.RegisterSession(mailbox_);
  context_.AddLongLived(weak);
  Write();
  StartRead(&up_);
}

void Session::OnReadDone(bool ok) {
  if (!ok) return Close(absl::OkStatus());  // the router ended its side, or is gone
  switch (up_.message_case()) {
    case v1::SessionUp::kSubmit:
      Submit(up_.submit());
      break;
    case v1::SessionUp::kCancel:
      context_.engine.Cancel(engine_session_, RequestId{up_.cancel().request_id()});
      break;
    case v1::SessionUp::kPing: {
      std::lock_guard<std::mutex> lock(mutex_);
      pongs_.push_back(up_.ping().nonce());
      break;
    }
    case v1::SessionUp::MESSAGE_NOT_SET:  // from a newer router: nothing we know
      break;
  }
  if (up_.has_ping()) Write();
  StartRead(&up_);
}

void Session::Submit(const v1::Submit& submit) {
  absl::StatusOr<EngineRequest> request = Translate(submit, context_.limits);
  absl::Status status = request.status();
  if (request.ok()) {
    request->session = engine_session_;
    status = context_.engine.Submit(*std::move(request));
  }
  if (status.ok()) return;
  StepEvents refused;
  refused.finished.push_back({.id = RequestId{submit.request_id()},
                              .reason = FinishReason::kError,
                              .status = std::move(status),
                              .prompt_tokens = submit.prompt_ids_size()});
  mailbox_->OnEvents(&refused);
}

void Session::Write() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (writing_ || closed_) return;
  down_.Clear();
  bool any = hello_due_ || heartbeat_due_ || !pongs_.empty();
  if (std::exchange(hello_due_, false)) context_.FillHello(down_.mutable_hello());
  if (std::exchange(heartbeat_due_, false)) context_.FillLoad(down_.mutable_heartbeat());
  if (!pongs_.empty()) {
    down_.mutable_pong()->set_nonce(pongs_.back());  // the latest answers the earlier ones too
    pongs_.clear();
  }
  if (mailbox_->Take(&events_)) {
    PackEvents(events_, &down_);
    any = true;
  }
  if (any) {
    writing_ = true;
    StartWrite(&down_);
  } else if (stop_when_empty_) {
    closed_ = true;
    close_status_ = absl::UnavailableError("the worker is shutting down");
    FinishLocked();
  }
}

void Session::OnWriteDone(bool ok) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    writing_ = false;
    if (closed_) return FinishLocked();
  }
  if (ok) {
    Write();
  } else {
    Close(absl::OkStatus());
  }
}

void Session::Tick() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    heartbeat_due_ = true;
  }
  Write();
}

void Session::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_when_empty_ = true;
  }
  Write();
}

void Session::OnCancel() { Close(absl::CancelledError("the session was cancelled")); }

void Session::Close(const absl::Status& status) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (std::exchange(closed_, true)) return;
  close_status_ = status;
  if (!writing_) FinishLocked();  // else OnWriteDone does
}

void Session::FinishLocked() {
  context_.engine.CloseSession(engine_session_);
  Finish(ToGrpcStatus(close_status_));
}

void Session::Break() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (call_ != nullptr) call_->TryCancel();
}

void Session::OnDone() {
  const std::shared_ptr<Session> self = std::move(self_);
  std::lock_guard<std::mutex> lock(mutex_);
  call_ = nullptr;  // gRPC frees it now
}

}  // namespace penstock
