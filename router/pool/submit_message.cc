#include "router/pool/submit_message.h"

#include "penstock/v1/worker.pb.h"

namespace penstock {
namespace {

void FillSampling(const GenerationRequest& request, v1::SamplingParams* out) {
  out->set_temperature(request.temperature);
  out->set_top_p(request.top_p);
  out->set_top_k(request.top_k);
  out->set_min_p(request.min_p);
  out->set_presence_penalty(request.presence_penalty);
  out->set_frequency_penalty(request.frequency_penalty);
  out->set_repetition_penalty(request.repetition_penalty);
  for (const auto& [id, bias] : request.logit_bias) (*out->mutable_logit_bias())[id] = bias;
  out->mutable_allowed_token_ids()->Add(request.allowed_token_ids.begin(),
                                        request.allowed_token_ids.end());
  out->set_seed(request.seed);
  out->set_choice(request.choice);
}

}  // namespace

void FillSubmit(uint64_t id, const GenerationRequest& request, std::span<const int32_t> emitted,
                int64_t deadline_ms, v1::Submit* out) {
  out->set_request_id(id);
  out->mutable_prompt_ids()->Add(request.prompt_ids.begin(), request.prompt_ids.end());
  out->mutable_output_token_ids()->Add(emitted.begin(), emitted.end());
  v1::GenerationParams* params = out->mutable_params();
  FillSampling(request, params->mutable_sampling());
  params->set_max_tokens(request.max_tokens);
  params->set_min_tokens(request.min_tokens);
  params->mutable_stop_token_ids()->Add(request.stop_token_ids.begin(),
                                        request.stop_token_ids.end());
  params->set_ignore_eos(request.ignore_eos);
  if (request.top_logprobs >= 0) params->set_top_logprobs(request.top_logprobs);
  params->set_processed_logprobs(request.processed_logprobs);
  params->set_priority(request.priority);
  params->set_deadline_ms(deadline_ms);
  params->set_cache_salt(request.cache_salt);
  params->set_trace_id(request.trace_id);
  params->set_group_id(request.group_id);
}

}  // namespace penstock
