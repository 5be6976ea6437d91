#include "router/api/generation_choice.h"

#include <algorithm>

#include "router/api/clock.h"

namespace penstock {
namespace {

// Tokens between two visits to the shared histogram.
constexpr uint32_t kGapBatch = 64;

int32_t CountChars(std::string_view text) {
  return static_cast<int32_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

ApiError EndError(const GenerationFinish& finish) {
  if (finish.reason == GenerationEnd::kDeadline) {
    return FromStatus(absl::DeadlineExceededError("the request's deadline passed"));
  }
  if (finish.reason == GenerationEnd::kCancelled) {
    return FromStatus(
        absl::UnavailableError("the worker cancelled the request: it is shutting down"));
  }
  return FromStatus(finish.status, finish.field);
}

}  // namespace

Generation::Choice::Choice(Generation& owner, int32_t index, const PreparedPrompt& prompt,
                           bool shows_prompt_ids)
    : owner_(owner),
      prompt_(prompt),
      prompt_ids_(shows_prompt_ids ? &prompt.ids : nullptr),
      output_(owner.request_.model->text, owner.request_.output),
      writer_(owner.request_.info, *owner.request_.model->text, index,
              owner.request_.info.chat ? 0 : CountChars(prompt.echo)) {}

void Generation::Choice::Submit(GenerationRequest request) {
  queued_ = true;
  handle_ = owner_.context_.pool.Submit(std::move(request), owner_.exchange_->executor(), *this);
}

void Generation::Choice::EndWithoutTokens() {
  GenerationFinish finish;
  finish.reason = GenerationEnd::kLength;
  finish.prompt_tokens = static_cast<int32_t>(prompt_.ids.size());
  TakeFinish(std::move(finish));
}

void Generation::Choice::LeaveQueue(bool began) {
  if (!std::exchange(queued_, false)) return;
  owner_.context_.admission.Leave(static_cast<int64_t>(prompt_.ids.size()), began, NowNs());
}

// A resumption says it again; the first one is what the client's request met.
void Generation::Choice::OnStarted(const GenerationStart& start) {
  if (cached_tokens_.has_value()) return;
  cached_tokens_ = start.cached_tokens;
  queue_seconds_ = start.queue_seconds;
  prefill_seconds_ = start.prefill_seconds;
}

void Generation::Choice::OnToken(int32_t token_id, int32_t index) {
  if (done_) return;
  const int64_t now = NowNs();
  if (first_ns_ == 0) {
    first_ns_ = now;
    LeaveQueue(true);
    owner_.FirstToken(now);
  } else {
    gaps_.Add(SecondsBetween(last_ns_, now));
    if (gaps_.total >= kGapBatch) owner_.context_.metrics.AddGaps(&gaps_);
  }
  last_ns_ = now;
  Waiting token{token_id, index, std::exchange(logprobs_, std::nullopt)};
  if (owner_.backlogged_ || !waiting_.empty()) {
    waiting_.push_back(std::move(token));
    return;
  }
  Render(std::move(token));
}

// Here the choice may end, and with it the whole generation: nothing may follow a call of this but
// a check of done_.
void Generation::Choice::Render(Waiting token) {
  const std::string text = output_.Push(token.id, token.index, std::move(token.logprobs));
  if (owner_.streaming()) {
    Begin();
    Emit(text);
  } else {
    text_ += text;
  }
  if (output_.end().has_value()) {
    handle_->Cancel();
    EndHere();
  }
}

void Generation::Choice::Begin() {
  if (std::exchange(begun_, true)) return;
  if (owner_.request_.info.chat) {
    writer_.AppendRole(prompt_ids_, ChoiceUsage(), &owner_.events_);
    ids_shown_ = true;
    ++owner_.num_events_;
  }
  if (prompt_.echo.empty()) return;
  writer_.AppendText(prompt_.echo, ChoiceUsage(), &owner_.events_);
  ++owner_.num_events_;
}

void Generation::Choice::Emit(const std::string& text) {
  if (output_.has_records()) {
    const std::vector<int32_t>* ids = std::exchange(ids_shown_, true) ? nullptr : prompt_ids_;
    writer_.AppendRecords(text, output_.TakeRecords(), ids, ChoiceUsage(), &owner_.events_);
  } else if (!text.empty()) {
    writer_.AppendText(text, ChoiceUsage(), &owner_.events_);
  } else {
    return;
  }
  ++owner_.num_events_;
}

Usage Generation::Choice::ChoiceUsage() const {
  if (!owner_.request_.info.continuous_usage) return {};
  return {.prompt_tokens = static_cast<int64_t>(prompt_.ids.size()),
          .completion_tokens = output_.completion_tokens()};
}

void Generation::Choice::OnFinish(GenerationFinish finish) {
  if (done_) return;
  if (owner_.backlogged_ || !waiting_.empty()) {
    const bool failed = finish.reason != GenerationEnd::kEos &&
                        finish.reason != GenerationEnd::kStopId &&
                        finish.reason != GenerationEnd::kLength;
    if (!failed) {
      waiting_finish_ = std::move(finish);
      return;
    }
  }
  TakeFinish(std::move(finish));
}

void Generation::Choice::TakeFinish(GenerationFinish finish) {
  switch (finish.reason) {
    case GenerationEnd::kError:
    case GenerationEnd::kDeadline:
    case GenerationEnd::kCancelled:
      owner_.Fail(EndError(finish));
      return;
    default:
      break;
  }
  OnStarted({.cached_tokens = finish.cached_tokens,
             .queue_seconds = finish.queue_seconds,
             .prefill_seconds = finish.prefill_seconds});
  const std::string text = output_.Finish(finish);
  if (owner_.streaming()) {
    Begin();
    Emit(text);
  } else {
    text_ += text;
  }
  EndHere();
}

void Generation::Choice::EndHere() {
  done_ = true;
  LeaveQueue(true);
  if (owner_.streaming()) {
    writer_.AppendEnd(*output_.end(), ChoiceUsage(), &owner_.events_);
    ++owner_.num_events_;
  } else {
    records_ = output_.TakeRecords();
  }
  Record(output_.end()->finish_reason);
  owner_.ChoiceDone();
}

void Generation::Choice::Record(std::string_view reason) {
  owner_.context_.metrics.AddGaps(&gaps_);
  const int64_t now = NowNs();
  owner_.context_.metrics.ObserveChoice(
      {.reason = reason,
       .prompt_tokens = static_cast<int64_t>(prompt_.ids.size()),
       .cached_tokens = cached_tokens_.value_or(0),
       .generated_tokens = output_.completion_tokens(),
       .max_tokens = prompt_.max_tokens,
       .e2e_seconds = SecondsBetween(owner_.received_ns_, now),
       .decode_seconds = first_ns_ == 0 ? 0 : SecondsBetween(first_ns_, last_ns_),
       .queue_seconds = queue_seconds_,
       .prefill_seconds = prefill_seconds_});
}

void Generation::Choice::Resume() {
  size_t next = 0;
  while (next < waiting_.size() && !owner_.backlogged_ && !done_) {
    Render(std::move(waiting_[next++]));
    if (!done_) owner_.Flush();
  }
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<ptrdiff_t>(next));
  if (done_ || owner_.backlogged_ || !waiting_.empty() || !waiting_finish_.has_value()) return;
  TakeFinish(*std::exchange(waiting_finish_, std::nullopt));
}

void Generation::Choice::Abandon(std::string_view reason) {
  if (done_) return;
  done_ = true;
  LeaveQueue(false);
  if (handle_ != nullptr) handle_->Cancel();
  waiting_.clear();
  Record(reason);
}

FinishedChoice Generation::Choice::TakeFinished() {
  FinishedChoice finished;
  finished.text = prompt_.echo + text_;
  finished.records = std::move(records_);
  finished.end = *output_.end();
  finished.prompt_ids = prompt_ids_;
  finished.first_offset = CountChars(prompt_.echo);
  return finished;
}

}  // namespace penstock
