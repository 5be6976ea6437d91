#include "worker/service/generate_request.h"

#include <algorithm>
#include <random>
#include <string_view>

#include "common/base/status.h"
#include "common/rpc/rpc_status.h"
#include "penstock/v1/worker.pb.h"

namespace penstock {
namespace {

constexpr int kMaxStopStrings = 16;

absl::Status NoTextLayer(std::string_view field) {
  return WithField(FailedPrecondition("%s: this worker has no tokenizer; send token_ids", field),
                   field);
}

absl::StatusOr<std::vector<int32_t>> PromptIds(const v1::GenerateRequest& request,
                                               const TextModel* text) {
  switch (request.prompt_case()) {
    case v1::GenerateRequest::kTokenIds:
      return std::vector<int32_t>(request.token_ids().ids().begin(),
                                  request.token_ids().ids().end());
    case v1::GenerateRequest::kText: {
      if (text == nullptr) return NoTextLayer("text");
      auto ids = text->EncodeText(request.text());
      if (!ids.ok()) return WithField(ids.status(), "text");
      return ids;
    }
    case v1::GenerateRequest::kChat: {
      if (text == nullptr) return NoTextLayer("chat");
      auto ids =
          text->EncodeChat({.messages_json = request.chat().messages_json(),
                            .tools_json = request.chat().tools_json(),
                            .template_kwargs_json = request.chat().template_kwargs_json(),
                            .add_generation_prompt = request.chat().add_generation_prompt(),
                            .continue_final_message = request.chat().continue_final_message()});
      if (!ids.ok()) return WithField(ids.status(), "chat");
      return ids;
    }
    case v1::GenerateRequest::PROMPT_NOT_SET:
      break;
  }
  return WithField(InvalidArgument("prompt: set one of token_ids, text and chat"), "prompt");
}

uint64_t DrawSeed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

void FillSampling(const v1::GenerateRequest& request, const SamplingDefaults& defaults,
                  v1::SamplingParams* out) {
  out->set_temperature(request.has_temperature() ? request.temperature()
                                                 : defaults.temperature.value_or(1.0f));
  out->set_top_p(request.has_top_p() ? request.top_p() : defaults.top_p.value_or(1.0f));
  out->set_top_k(request.has_top_k() ? request.top_k() : defaults.top_k.value_or(0));
  out->set_min_p(request.has_min_p() ? request.min_p() : defaults.min_p.value_or(0.0f));
  out->set_repetition_penalty(request.has_repetition_penalty()
                                  ? request.repetition_penalty()
                                  : defaults.repetition_penalty.value_or(1.0f));
  out->set_seed(request.has_seed() ? request.seed() : DrawSeed());
}

}  // namespace

absl::StatusOr<v1::Submit> PrepareSubmit(const v1::GenerateRequest& request, const TextModel* text,
                                         const RequestLimits& limits) {
  v1::Submit submit;
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, PromptIds(request, text));
  submit.mutable_prompt_ids()->Add(ids.begin(), ids.end());
  *submit.mutable_params() = request.params();
  const bool enters_as_text = request.prompt_case() != v1::GenerateRequest::kTokenIds;
  FillSampling(request, enters_as_text ? text->defaults() : SamplingDefaults(),
               submit.mutable_params()->mutable_sampling());
  if (submit.params().max_tokens() == 0) {
    const int64_t room = int64_t{limits.max_model_len} - submit.prompt_ids_size();
    if (room < 1) {
      return WithField(InvalidArgument("prompt: %d tokens leave no room for output; this model's "
                                       "context holds %d",
                                       submit.prompt_ids_size(), limits.max_model_len),
                       "prompt");
    }
    submit.mutable_params()->set_max_tokens(static_cast<int32_t>(room));
  }
  return submit;
}

absl::StatusOr<StopMatcher::Options> PrepareStops(const v1::GenerateRequest& request,
                                                  const TextModel* text) {
  if (request.stop_size() > 0 && text == nullptr) return NoTextLayer("stop");
  if (request.return_text() && text == nullptr) return NoTextLayer("return_text");
  if (request.stop_size() > kMaxStopStrings) {
    return WithField(InvalidArgument("stop: %d strings; at most %d are accepted",
                                     request.stop_size(), kMaxStopStrings),
                     "stop");
  }
  StopMatcher::Options options;
  options.stops.assign(request.stop().begin(), request.stop().end());
  if (std::count(options.stops.begin(), options.stops.end(), "") > 0) {
    return WithField(InvalidArgument("stop: a stop string is empty; leave it out"), "stop");
  }
  options.include_stop = request.include_stop_str_in_output();
  options.min_tokens = request.params().min_tokens();
  return options;
}

}  // namespace penstock
