// The engine loop's second half: what a collected step's output does to its sequences.

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/status.h"
#include "worker/engine/engine_loop.h"

namespace penstock {

absl::Status EngineLoop::CollectStep() {
  ASSIGN_OR_RETURN(const StepOutput* output, runner_.Collect());
  now_ns_ = options_.now_ns();
  Flight& flight = flights_[(next_step_ - static_cast<uint64_t>(num_flights_)) % kMaxStepsInFlight];
  CHECK(output->step_id == flight.step_id);
  --num_flights_;
  ++report_.stats.steps;
  size_t next_output = 0;
  for (size_t i = 0; i < flight.rows.size(); ++i) {
    if (i + kPrefetch < flight.rows.size()) Prefetch(flight.rows[i + kPrefetch].sequence);
    const FlownRow& row = flight.rows[i];
    const RowOutput* out = nullptr;
    if (row.samples) {
      CHECK(next_output < output->rows.size());
      out = &output->rows[next_output++];
      CHECK(out->slot == row.sequence->slot);
    }
    FinishRow(row, *output, out);
  }
  CHECK(next_output == output->rows.size());
  return absl::OkStatus();
}

absl::Status EngineLoop::CollectAll() {
  while (num_flights_ > 0) RETURN_IF_ERROR(CollectStep());
  return absl::OkStatus();
}

void EngineLoop::FinishRow(const FlownRow& row, const StepOutput& output, const RowOutput* out) {
  Sequence* s = row.sequence;
  --s->rows_in_flight;
  s->collected += row.num_tokens;
  if (s->state != SequenceState::kEnded) {
    if (out != nullptr && out->nonfinite_logits) {
      ++report_.stats.nonfinite_requests;
      End(s, FinishReason::kError, -1,
          Internal("the model's logits are not finite at output token %d", s->num_output()));
    } else {
      if ((s->published + 1) * limits_.block_size <= s->collected) PublishBlocks(s);
      if (out != nullptr) TakeTokens(s, output, *out);
    }
  }
  // A row still in flight begins at `collected`, so it reads nothing before that one's window.
  if (s->state == SequenceState::kRunning) {
    if (kv_.has_windows()) kv_.ReleaseBefore(s->collected, &s->table);
    return;
  }
  if (s->rows_in_flight > 0) return;
  if (s->slot == kPaddingSlot) return;  // ended just now with nothing else in flight
  std::erase(draining_, s);
  ReleaseResources(s);
  if (s->state == SequenceState::kPreempting) {
    Requeue(s);
  } else {
    Bury(s);
  }
}

void EngineLoop::TakeTokens(Sequence* s, const StepOutput& output, const RowOutput& out) {
  CHECK(s->unknown > 0);
  --s->unknown;
  CHECK(out.token_end == out.token_begin + 1);  // several tokens a row: with speculation
  const TokenId token = output.tokens[static_cast<size_t>(out.token_begin)];
  CHECK(token >= 0 && token < limits_.vocab_size);
  if (s->first_token_ns == 0) {
    s->first_token_ns = now_ns_;
    EventsOf(s)->started.push_back({.id = s->id,
                                    .cached_tokens = s->cached_tokens,
                                    .queue_ns = s->start_ns - s->arrival_ns,
                                    .prefill_ns = now_ns_ - s->start_ns});
  }
  s->tokens.push_back(token);
  ++report_.stats.generation_tokens;
  EventsOf(s)->tokens.push_back({s->id, token, s->num_output() - 1});
  if (out.logprob_end > out.logprob_begin) EmitLogprobs(s, output, out);
  (void)EndsWith(s, token);
}

void EngineLoop::EmitLogprobs(Sequence* s, const StepOutput& output, const RowOutput& out) {
  LogprobEvent event;
  event.id = s->id;
  event.index = s->num_output() - 1;
  event.rank = out.sampled_rank;
  event.logprobs.assign(output.logprobs.begin() + out.logprob_begin,
                        output.logprobs.begin() + out.logprob_end);
  EventsOf(s)->logprobs.push_back(std::move(event));
}

bool EngineLoop::EndsWith(Sequence* s, TokenId token) {
  // min_tokens hides all stops; the sampler masks them, and a replayed one does not count either.
  const bool stops = s->num_output() > s->min_tokens &&
                     std::binary_search(s->end_ids.begin(), s->end_ids.end(), token);
  if (stops) {
    const std::vector<TokenId>& eos = s->request.eos_ids;
    const bool is_eos = std::binary_search(eos.begin(), eos.end(), token);
    End(s, is_eos ? FinishReason::kEos : FinishReason::kStopId, token, absl::OkStatus());
  } else if (s->num_output() >= s->max_tokens) {
    End(s, FinishReason::kLength, -1, absl::OkStatus());
  } else {
    return false;
  }
  return true;
}

void EngineLoop::PublishBlocks(Sequence* s) {
  if (!options_.enable_prefix_caching) return;
  const int32_t size = limits_.block_size;
  while ((s->published + 1) * size <= s->collected) {
    const size_t index = static_cast<size_t>(s->published);
    if (index == s->chain.size()) {  // a block of sampled tokens; the prompt's come from Submit
      const BlockHash& parent = index == 0 ? s->root : s->chain[index - 1];
      const std::span<const TokenId> tokens(s->tokens);
      s->chain.push_back(hasher_.Next(
          parent, tokens.subspan(index * static_cast<size_t>(size), static_cast<size_t>(size))));
    }
    kv_.Publish(s->table, s->published, s->chain[index]);
    ++s->published;
  }
  if (s->group != nullptr && s->group->leader == s && !s->group->published &&
      s->published >= (s->num_prompt - 1) / size) {
    s->group->published = true;
  }
}

void EngineLoop::End(Sequence* s, FinishReason reason, TokenId stop_id, absl::Status status) {
  if (s->state == SequenceState::kEnded) return;
  if (s->session != nullptr) {
    FinishEvent event;
    event.id = s->id;
    event.reason = reason;
    event.stop_id = stop_id;
    event.status = std::move(status);
    event.prompt_tokens = s->num_prompt;
    event.cached_tokens = std::max(s->cached_tokens, 0);
    event.completion_tokens = s->num_output();
    const bool started = s->cached_tokens >= 0;
    event.queue_ns = (started ? s->start_ns : now_ns_) - s->arrival_ns;
    if (started) {
      event.prefill_ns = (s->first_token_ns != 0 ? s->first_token_ns : now_ns_) - s->start_ns;
    }
    if (s->first_token_ns != 0) event.decode_ns = now_ns_ - s->first_token_ns;
    event.preemptions = s->preemptions;
    EventsOf(s)->finished.push_back(std::move(event));
  }
  if (s->cached_tokens < 0) {  // leaves the queue without having started
    ++report_.started;
    report_.started_tokens += static_cast<int64_t>(s->tokens.size());
  }
  if (reason == FinishReason::kError) kv_.Forget(s->chain);
  LeaveGroup(s);
  const SequenceState before = std::exchange(s->state, SequenceState::kEnded);
  if (before == SequenceState::kWaiting) std::erase(waiting_, s);
  if (before == SequenceState::kRunning) std::erase(running_, s);
  if (s->rows_in_flight > 0) {
    if (before == SequenceState::kRunning) draining_.push_back(s);
    return;
  }
  std::erase(draining_, s);
  ReleaseResources(s);
  Bury(s);
}

void EngineLoop::ReleaseResources(Sequence* s) {
  if (s->slot == kPaddingSlot) return;
  kv_.Release(&s->table);
  free_slots_.push_back(std::exchange(s->slot, kPaddingSlot));
  s->computed = s->collected = s->published = s->prefill_end = 0;
  CHECK(s->state == SequenceState::kEnded || s->unknown == 0);
}

void EngineLoop::Bury(Sequence* s) {
  const size_t index = s->index;
  dead_.push_back(std::move(live_[index]));
  if (index + 1 < live_.size()) {
    live_[index] = std::move(live_.back());
    live_[index]->index = index;
  }
  live_.pop_back();
}

StepEvents* EngineLoop::EventsOf(Sequence* s) {
  if (!s->session->dirty) {
    s->session->dirty = true;
    dirty_.push_back(s->session);
  }
  return &s->session->events;
}

}  // namespace penstock
