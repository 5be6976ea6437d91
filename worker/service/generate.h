#pragma once

// Generate: a session of one for internal services, with text on demand. The reactions only post
// to the text threads, which prepare the request and render what the mailbox has gathered.

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <mutex>

#include "penstock/v1/worker.pb.h"
#include "worker/engine/mailbox.h"
#include "worker/service/output_text.h"
#include "worker/service/service_context.h"

namespace penstock {

class Generate final : public grpc::ServerWriteReactor<v1::GenerateResponse>,
                       public std::enable_shared_from_this<Generate> {
 public:
  static grpc::ServerWriteReactor<v1::GenerateResponse>* Start(ServiceContext& context,
                                                               grpc::CallbackServerContext* call,
                                                               const v1::GenerateRequest* request);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  Generate(ServiceContext& context, grpc::CallbackServerContext* call,
           const v1::GenerateRequest* request);

 private:
  void PostToTexts(void (Generate::*step)());
  void Prepare();
  absl::Status Submit();
  void Render();
  void Cancelled();
  void Break();
  void CloseLocked(const absl::Status& status);
  void FinishLocked();

  ServiceContext& context_;
  const v1::GenerateRequest* const request_;  // gRPC's, until OnDone
  std::shared_ptr<Generate> self_;            // until OnDone
  std::shared_ptr<Mailbox> mailbox_;

  std::mutex mutex_;                   // guards the rest; held while rendering
  grpc::CallbackServerContext* call_;  // null after OnDone
  uint32_t engine_session_ = 0;
  std::unique_ptr<OutputText> output_;
  v1::GenerateResponse response_;
  StepEvents events_;
  bool first_ = true;
  bool cancelled_in_engine_ = false;
  bool writing_ = false;
  bool closed_ = false;
  absl::Status close_status_;
};

}  // namespace penstock
