#include "worker/service/wire.h"

#include "common/rpc/rpc_status.h"
#include "penstock/v1/worker.pb.h"

namespace penstock {
namespace {

v1::FinishReason WireReason(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEos:
      return v1::FINISH_REASON_EOS;
    case FinishReason::kStopId:
      return v1::FINISH_REASON_STOP_ID;
    case FinishReason::kLength:
      return v1::FINISH_REASON_LENGTH;
    case FinishReason::kCancelled:
      return v1::FINISH_REASON_CANCELLED;
    case FinishReason::kDeadline:
      return v1::FINISH_REASON_DEADLINE;
    case FinishReason::kError:
      break;
  }
  return v1::FINISH_REASON_ERROR;
}

double Seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace

void PackLogprobs(const LogprobEvent& event, v1::LogprobRecord* out) {
  out->set_request_id(Value(event.id));
  out->set_index(event.index);
  out->set_rank(event.rank);
  for (const TokenLogprob& logprob : event.logprobs) {
    v1::TokenLogprob* top = out->add_top();
    top->set_token_id(logprob.token);
    top->set_logprob(logprob.logprob);
  }
}

void PackFinish(const FinishEvent& event, v1::Finish* out) {
  out->set_request_id(Value(event.id));
  out->set_reason(WireReason(event.reason));
  if (event.reason == FinishReason::kEos || event.reason == FinishReason::kStopId) {
    out->set_stop_id(event.stop_id);
  }
  if (event.reason == FinishReason::kError) {
    out->set_status_code(static_cast<int>(event.status.code()));
    out->set_status_message(std::string(event.status.message()));
    out->set_status_field(FieldOf(event.status));
  }
  out->set_prompt_tokens(event.prompt_tokens);
  out->set_cached_tokens(event.cached_tokens);
  out->set_completion_tokens(event.completion_tokens);
  out->set_queue_seconds(Seconds(event.queue_ns));
  out->set_prefill_seconds(Seconds(event.prefill_ns));
  out->set_decode_seconds(Seconds(event.decode_ns));
  out->set_preemptions(event.preemptions);
}

void PackEvents(const StepEvents& events, v1::SessionDown* out) {
  for (const RequestId id : events.accepted) out->add_accepted()->set_request_id(Value(id));
  for (const StartEvent& start : events.started) {
    v1::Started* started = out->add_started();
    started->set_request_id(Value(start.id));
    started->set_cached_tokens(start.cached_tokens);
    started->set_queue_seconds(Seconds(start.queue_ns));
    started->set_prefill_seconds(Seconds(start.prefill_ns));
  }
  if (!events.tokens.empty()) {
    v1::Step* step = out->mutable_step();
    step->set_step(events.step);
    const int size = static_cast<int>(events.tokens.size());
    step->mutable_request_id()->Reserve(size);
    step->mutable_token_id()->Reserve(size);
    step->mutable_index()->Reserve(size);
    for (const TokenEvent& token : events.tokens) {
      step->add_request_id(Value(token.id));
      step->add_token_id(token.token);
      step->add_index(token.index);
    }
  }
  for (const LogprobEvent& logprobs : events.logprobs) PackLogprobs(logprobs, out->add_logprobs());
  for (const FinishEvent& finish : events.finished) PackFinish(finish, out->add_finished());
}

void PackLoad(const EngineStats& stats, int64_t now_ns, bool draining, v1::Load* out) {
  out->set_engine_age_ms(std::max<int64_t>(0, now_ns - stats.last_loop_ns) / 1'000'000);
  out->set_steps(stats.steps);
  out->set_running(stats.running);
  out->set_waiting(stats.waiting);
  out->set_total_blocks(stats.total_blocks);
  out->set_free_blocks(stats.free_blocks);
  out->set_cached_blocks(stats.cached_blocks);
  out->set_prefix_queries(stats.prefix_queries);
  out->set_prefix_hits(stats.prefix_hits);
  out->set_preemptions(stats.preemptions);
  out->set_prompt_tokens(stats.prompt_tokens);
  out->set_generation_tokens(stats.generation_tokens);
  out->set_waiting_tokens(stats.waiting_tokens);
  out->set_nonfinite_requests(stats.nonfinite_requests);
  out->set_draining(draining);
}

}  // namespace penstock
