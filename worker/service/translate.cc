// Translate: a Submit to an EngineRequest. Every range check is written so that NaN fails it.

#include <algorithm>
#include <string_view>

#include "common/base/status.h"
#include "common/rpc/rpc_status.h"
#include "penstock/v1/worker.pb.h"
#include "worker/service/wire.h"

namespace penstock {
namespace {

constexpr float kMaxTemperature = 100.0f;
constexpr float kMaxPenalty = 2.0f;
constexpr float kMaxBias = 100.0f;
constexpr int kMaxStopTokenIds = 1024;
constexpr size_t kMaxSaltBytes = 4096;

template <typename... Args>
absl::Status Bad(std::string_view field, const absl::FormatSpec<Args...>& format,
                 const Args&... args) {
  return WithField(InvalidArgument("%s: %s", field, absl::StrFormat(format, args...)), field);
}

absl::Status Unsupported(std::string_view field) {
  return WithField(Unimplemented("%s is not supported yet; leave it out", field), field);
}

absl::Status CheckRange(std::string_view field, float value, float low, float high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return Bad(field, "%g is not between %g and %g", value, low, high);
}

template <typename Ids>
absl::Status CheckIds(std::string_view field, const Ids& ids, int32_t vocab_size) {
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size) {
      return Bad(field, "token id %d is not in the vocabulary (0 to %d)", id, vocab_size - 1);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSupported(const v1::GenerationParams& params) {
  if (params.has_prompt_logprobs()) return Unsupported("prompt_logprobs");
  switch (params.constraint().kind_case()) {
    case v1::Constraint::kJsonSchema:
      return Unsupported("json_schema");
    case v1::Constraint::kRegex:
      return Unsupported("regex");
    case v1::Constraint::kGrammar:
      return Unsupported("grammar");
    case v1::Constraint::kStructuralTag:
      return Unsupported("structural_tag");
    case v1::Constraint::KIND_NOT_SET:
      break;
  }
  if (params.bad_words_size() > 0) return Unsupported("bad_words");
  if (!params.adapter_id().empty()) return Unsupported("adapter_id");
  if (params.output() != v1::OUTPUT_KIND_TOKENS) return Unsupported("output");
  return absl::OkStatus();
}

absl::Status CheckLengths(const v1::Submit& submit, const RequestLimits& limits) {
  const v1::GenerationParams& params = submit.params();
  if (submit.prompt_ids().empty()) return Bad("prompt_ids", "the prompt has no tokens");
  if (params.max_tokens() < 1) {
    return Bad("max_tokens", "%d is not at least 1", params.max_tokens());
  }
  const int64_t total = int64_t{submit.prompt_ids_size()} + params.max_tokens();
  if (total > limits.max_model_len) {
    return Bad("max_tokens",
               "%d prompt tokens and %d output tokens make %d; this model's "
               "context holds %d",
               submit.prompt_ids_size(), params.max_tokens(), total, limits.max_model_len);
  }
  if (params.min_tokens() < 0 || params.min_tokens() > params.max_tokens()) {
    return Bad("min_tokens", "%d is not between 0 and max_tokens (%d)", params.min_tokens(),
               params.max_tokens());
  }
  if (submit.output_token_ids_size() >= params.max_tokens()) {
    return Bad("output_token_ids", "%d tokens are there already and max_tokens is %d",
               submit.output_token_ids_size(), params.max_tokens());
  }
  RETURN_IF_ERROR(CheckIds("prompt_ids", submit.prompt_ids(), limits.vocab_size));
  return CheckIds("output_token_ids", submit.output_token_ids(), limits.vocab_size);
}

absl::Status CheckSampling(const v1::SamplingParams& sampling) {
  RETURN_IF_ERROR(CheckRange("temperature", sampling.temperature(), 0, kMaxTemperature));
  RETURN_IF_ERROR(CheckRange("top_p", sampling.top_p(), 0, 1));
  RETURN_IF_ERROR(CheckRange("min_p", sampling.min_p(), 0, 1));
  if (sampling.top_k() < 0) {
    return Bad("top_k", "%d is negative; 0 switches it off", sampling.top_k());
  }
  RETURN_IF_ERROR(
      CheckRange("presence_penalty", sampling.presence_penalty(), -kMaxPenalty, kMaxPenalty));
  RETURN_IF_ERROR(
      CheckRange("frequency_penalty", sampling.frequency_penalty(), -kMaxPenalty, kMaxPenalty));
  const float repetition = sampling.repetition_penalty();
  if (!(repetition > 0 && repetition <= 100)) {
    return Bad("repetition_penalty", "%g is not above 0 and at most 100; 1 switches it off",
               repetition);
  }
  return absl::OkStatus();
}

absl::StatusOr<SamplingParams> TranslateSampling(const v1::GenerationParams& params,
                                                 const RequestLimits& limits) {
  const v1::SamplingParams& in = params.sampling();
  RETURN_IF_ERROR(CheckSampling(in));
  SamplingParams out;
  out.temperature = in.temperature();
  out.top_p = in.top_p();
  out.top_k = in.top_k();
  out.min_p = in.min_p();
  out.presence_penalty = in.presence_penalty();
  out.frequency_penalty = in.frequency_penalty();
  out.repetition_penalty = in.repetition_penalty();
  for (const auto& [id, bias] : in.logit_bias()) {
    RETURN_IF_ERROR(CheckIds("logit_bias", std::initializer_list<int32_t>{id}, limits.vocab_size));
    RETURN_IF_ERROR(CheckRange("logit_bias", bias, -kMaxBias, kMaxBias));
    out.logit_bias.emplace_back(id, bias);
  }
  std::sort(out.logit_bias.begin(), out.logit_bias.end());
  RETURN_IF_ERROR(CheckIds("allowed_token_ids", in.allowed_token_ids(), limits.vocab_size));
  out.allowed_token_ids.assign(in.allowed_token_ids().begin(), in.allowed_token_ids().end());
  out.seed = in.seed();
  out.choice = in.choice();
  out.min_tokens = params.min_tokens();
  if (params.has_top_logprobs()) {
    if (params.top_logprobs() < 0 || params.top_logprobs() > kMaxTopLogprobs) {
      return Bad("top_logprobs", "%d is not between 0 and %d", params.top_logprobs(),
                 kMaxTopLogprobs);
    }
    out.top_logprobs = params.top_logprobs();
  }
  out.processed_logprobs = params.processed_logprobs();
  return out;
}

absl::Status TranslateStops(const v1::GenerationParams& params, const RequestLimits& limits,
                            EngineRequest* out) {
  if (params.stop_token_ids_size() > kMaxStopTokenIds) {
    return Bad("stop_token_ids", "%d ids; at most %d are accepted", params.stop_token_ids_size(),
               kMaxStopTokenIds);
  }
  RETURN_IF_ERROR(CheckIds("stop_token_ids", params.stop_token_ids(), limits.vocab_size));
  out->stop_token_ids.assign(params.stop_token_ids().begin(), params.stop_token_ids().end());
  if (!params.ignore_eos()) out->eos_ids = limits.eos_token_ids;
  out->sampling.eos_and_stop_ids = out->eos_ids;
  out->sampling.eos_and_stop_ids.insert(out->sampling.eos_and_stop_ids.end(),
                                        out->stop_token_ids.begin(), out->stop_token_ids.end());
  return absl::OkStatus();
}

absl::StatusOr<int64_t> DeadlineNs(int64_t deadline_ms) {
  if (deadline_ms < 0) return Bad("deadline_ms", "%d is negative; 0 means none", deadline_ms);
  if (deadline_ms == 0) return 0;
  constexpr int64_t kYearMs = int64_t{365} * 24 * 3600 * 1000;
  return SteadyNowNs() + std::min(deadline_ms, kYearMs) * 1'000'000;
}

}  // namespace

absl::StatusOr<EngineRequest> Translate(const v1::Submit& submit, const RequestLimits& limits) {
  const v1::GenerationParams& params = submit.params();
  RETURN_IF_ERROR(CheckSupported(params));
  RETURN_IF_ERROR(CheckLengths(submit, limits));
  EngineRequest out;
  ASSIGN_OR_RETURN(out.sampling, TranslateSampling(params, limits));
  RETURN_IF_ERROR(TranslateStops(params, limits, &out));
  ASSIGN_OR_RETURN(out.deadline_ns, DeadlineNs(params.deadline_ms()));
  if (params.cache_salt().size() > kMaxSaltBytes) {
    return Bad("cache_salt", "%d bytes; at most %d are accepted", params.cache_salt().size(),
               kMaxSaltBytes);
  }
  out.id = RequestId{submit.request_id()};
  out.prompt_ids.assign(submit.prompt_ids().begin(), submit.prompt_ids().end());
  out.output_ids.assign(submit.output_token_ids().begin(), submit.output_token_ids().end());
  out.max_tokens = params.max_tokens();
  out.priority = params.priority();
  out.cache_salt = params.cache_salt();
  out.group_id = params.group_id();
  return out;
}

}  // namespace penstock
