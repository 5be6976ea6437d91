#include "worker/service/generate.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/status.h"
#include "common/rpc/rpc_status.h"
#include "worker/service/generate_request.h"
#include "worker/service/wire.h"

namespace penstock {
namespace {

constexpr size_t kMaxMailboxBytes = 64 << 20;
constexpr RequestId kOnlyRequest{1};

// The sooner of the call's own deadline and the request's; 0 = none.
int64_t DeadlineMs(const grpc::CallbackServerContext& call, int64_t requested_ms) {
  if (requested_ms < 0) return requested_ms;  // Translate refuses it
  if (call.deadline() == std::chrono::system_clock::time_point::max()) return requested_ms;
  const int64_t left = std::max<int64_t>(1, std::chrono::duration_cast<std::chrono::milliseconds>(
                                                call.deadline() - std::chrono::system_clock::now())
                                                .count());
  return requested_ms == 0 ? left : std::min(left, requested_ms);
}

}  // namespace

Generate::Generate(ServiceContext& context, grpc::CallbackServerContext* call,
                   const v1::GenerateRequest* request)
    : context_(context), request_(request), call_(call) {}

grpc::ServerWriteReactor<v1::GenerateResponse>* Generate::Start(
    ServiceContext& context, grpc::CallbackServerContext* call,
    const v1::GenerateRequest* request) {
  auto generate = std::make_shared<Generate>(context, call, request);
  generate->self_ = generate;
  generate->PostToTexts(&Generate::Prepare);
  return generate.get();
}

void Generate::PostToTexts(void (Generate::*step)()) {
  context_.texts->Post([weak = weak_from_this(), step] {
    if (const auto generate = weak.lock()) (generate.get()->*step)();
  });
}

void Generate::Prepare() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) return;
  if (const absl::Status status = Submit(); !status.ok()) CloseLocked(status);
}

absl::Status Generate::Submit() {
  ASSIGN_OR_RETURN(StopMatcher::Options stops, PrepareStops(*request_, context_.text.get()));
  ASSIGN_OR_RETURN(v1::Submit submit,
                   PrepareSubmit(*request_, context_.text.get(), context_.limits));
  submit.set_request_id(Value(kOnlyRequest));
  v1::GenerationParams* params = submit.mutable_params();
  params->set_deadline_ms(DeadlineMs(*call_, params->deadline_ms()));
  ASSIGN_OR_RETURN(EngineRequest request, Translate(submit, context_.limits));
  const bool needs_text = request_->return_text() || !stops.stops.empty();
  output_ = std::make_unique<OutputText>(
      needs_text ? context_.text->NewStream(request_->keep_special_tokens()) : nullptr,
      std::move(stops), request_->return_text());
  response_.mutable_prompt_token_ids()->Swap(submit.mutable_prompt_ids());
  mailbox_ = std::make_shared<Mailbox>(
      kMaxMailboxBytes,
      [texts = context_.texts, weak = weak_from_this()] {
        texts->Post([weak] {
          if (const auto generate = weak.lock()) generate->Render();
        });
      },
      [weak = weak_from_this()] {
        if (const auto generate = weak.lock()) generate->Break();
      });
  engine_session_ = context_.engine.RegisterSession(mailbox_);
  request.session = engine_session_;
  return context_.engine.Submit(std::move(request));
}

void Generate::Render() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (writing_ || closed_) return;
  if (mailbox_->Take(&events_)) output_->Add(events_, &response_);
  if (output_->stopped() && !std::exchange(cancelled_in_engine_, true)) {
    context_.engine.Cancel(engine_session_, kOnlyRequest);
  }
  if (output_->finished()) {
    close_status_ = output_->status();
    closed_ = true;
    writing_ = true;
    StartWrite(&response_);
    return;
  }
  const bool anything = std::exchange(first_, false) || response_.token_ids_size() > 0;
  if (!anything) return;
  writing_ = true;
  StartWrite(&response_);
}

void Generate::OnWriteDone(bool ok) {
  std::lock_guard<std::mutex> lock(mutex_);
  writing_ = false;
  if (closed_) return FinishLocked();
  if (!ok) return CloseLocked(absl::CancelledError("the caller is gone"));
  response_.Clear();
  PostToTexts(&Generate::Render);
}

// Posted, because a text thread may hold the mutex for as long as a prompt takes to tokenize.
void Generate::OnCancel() { PostToTexts(&Generate::Cancelled); }

void Generate::Cancelled() {
  std::lock_guard<std::mutex> lock(mutex_);
  CloseLocked(absl::CancelledError("the call was cancelled"));
}

void Generate::CloseLocked(const absl::Status& status) {
  if (std::exchange(closed_, true)) return;
  close_status_ = status;
  if (!writing_) FinishLocked();  // else OnWriteDone does
}

void Generate::FinishLocked() {
  if (engine_session_ != 0) context_.engine.CloseSession(engine_session_);
  Finish(ToGrpcStatus(close_status_));
}

void Generate::Break() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (call_ != nullptr) call_->TryCancel();
}

void Generate::OnDone() {
  const std::shared_ptr<Generate> self = std::move(self_);
  std::lock_guard<std::mutex> lock(mutex_);
  call_ = nullptr;  // gRPC frees it now, and the request
}

}  // namespace penstock
