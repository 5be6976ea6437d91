#include "worker/service/output_text.h"

#include <string_view>
#include <utility>

#include "penstock/v1/worker.pb.h"
#include "worker/service/wire.h"

namespace penstock {
namespace {

std::string_view OpenAiReason(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEos:
    case FinishReason::kStopId:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
    case FinishReason::kDeadline:
      return "abort";
    case FinishReason::kError:
      break;
  }
  return "error";
}

}  // namespace

void OutputText::Show(std::string text, v1::GenerateResponse* out) {
  if (return_text_) out->mutable_text()->append(text);
}

void OutputText::AddToken(const TokenEvent& token, v1::GenerateResponse* out) {
  if (stopped()) return;
  ++tokens_;
  last_index_ = token.index;
  out->add_token_ids(token.token);
  if (text_ == nullptr) return;
  Show(stops_.Append(text_->Append(token.token), token.index), out);
  const std::string hidden = text_->Hidden(token.token);
  if (!hidden.empty()) Show(stops_.Append(hidden, token.index, false), out);
}

void OutputText::Add(const StepEvents& events, v1::GenerateResponse* out) {
  for (const TokenEvent& token : events.tokens) AddToken(token, out);
  for (const LogprobEvent& logprobs : events.logprobs) {
    // Exactly those of the tokens that count.
    if (logprobs.index <= last_index_) PackLogprobs(logprobs, out->add_logprobs());
  }
  for (const FinishEvent& finish : events.finished) AddFinish(finish, out);
}

void OutputText::AddFinish(const FinishEvent& finish, v1::GenerateResponse* out) {
  finished_ = true;
  if (text_ != nullptr && !stopped()) {
    // The last incomplete character may complete a stop string too.
    Show(stops_.Append(text_->Flush(), last_index_), out);
    if (!stopped()) Show(stops_.Flush(), out);
  }
  v1::Finish* wire = out->mutable_finish();
  PackFinish(finish, wire);
  wire->clear_request_id();
  out->set_finish_reason(std::string(OpenAiReason(finish.reason)));
  if (finish.reason == FinishReason::kDeadline) {
    status_ = absl::DeadlineExceededError("the deadline passed before the output was complete");
  } else if (finish.reason == FinishReason::kError) {
    status_ = finish.status;
  }
  if (!stopped()) return;
  status_ = absl::OkStatus();
  wire->set_reason(v1::FINISH_REASON_STOP_STRING);
  wire->clear_stop_id();
  wire->clear_status_code();
  wire->clear_status_message();
  wire->set_completion_tokens(tokens_);
  out->set_finish_reason("stop");
  out->set_stop_string(stops_.matched_text());
}

}  // namespace penstock
