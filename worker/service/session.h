#pragma once

// The router's Session on the worker's side. It only moves messages: up to the engine, down from
// the mailbox. gRPC's threads call the reactions; Write and Tick come from the writer thread.

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <mutex>
#include <vector>

#include "penstock/v1/worker.pb.h"
#include "worker/engine/mailbox.h"
#include "worker/service/service_context.h"

namespace penstock {

class Session final : public grpc::ServerBidiReactor<v1::SessionUp, v1::SessionDown>,
                      public LongLived,
                      public std::enable_shared_from_this<Session> {
 public:
  // gRPC owns the result, in effect: it lives until OnDone.
  static grpc::ServerBidiReactor<v1::SessionUp, v1::SessionDown>* Start(
      ServiceContext& context, grpc::CallbackServerContext* call);

  void Tick() override;  // a heartbeat
  void Stop() override;  // ends once everything is written

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  Session(ServiceContext& context, grpc::CallbackServerContext* call);

 private:
  void Open();
  void Write();
  void Close(const absl::Status& status);
  void FinishLocked();
  void Break();
  void Submit(const v1::Submit& submit);

  ServiceContext& context_;
  std::shared_ptr<Session> self_;  // until OnDone
  std::shared_ptr<Mailbox> mailbox_;
  uint32_t engine_session_ = 0;
  v1::SessionUp up_;  // reused, as down_ and events_ are

  std::mutex mutex_;                   // guards the rest
  grpc::CallbackServerContext* call_;  // null after OnDone
  v1::SessionDown down_;
  StepEvents events_;
  std::vector<uint64_t> pongs_;
  bool hello_due_ = true;
  bool heartbeat_due_ = true;
  bool writing_ = false;
  bool stop_when_empty_ = false;
  bool closed_ = false;
  absl::Status close_status_;
};

}  // namespace penstock
