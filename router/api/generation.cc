#include "router/api/generation.h"

#include <algorithm>
#include <utility>

#include "router/api/clock.h"
#include "router/api/generation_choice.h"

namespace penstock {
namespace {

// More rendered bytes than this wait for no client: from there on its ids wait unrendered.
constexpr size_t kMaxPendingBytes = 64 << 10;

}  // namespace

Generation::Generation(const GenerationContext& context, std::shared_ptr<HttpExchange> exchange,
                       PreparedRequest request, HttpHeaders headers, Done done)
    : context_(context),
      exchange_(std::move(exchange)),
      request_(std::move(request)),
      headers_(std::move(headers)),
      done_(std::move(done)),
      received_ns_(exchange_->request().received_ns) {}

Generation::~Generation() = default;

void Generation::Start(const GenerationContext& context, std::shared_ptr<HttpExchange> exchange,
                       PreparedRequest request, HttpHeaders headers, Done done) {
  const std::shared_ptr<Generation> generation(new Generation(
      context, std::move(exchange), std::move(request), std::move(headers), std::move(done)));
  generation->self_ = generation;
  context.registry.Add(generation);
  context.metrics.ObserveRequest(generation->request_.fields.n);
  generation->exchange_->OnClientGone([g = generation.get()] { g->ClientGone(); });
  generation->Submit();
}

void Generation::Submit() {
  const int64_t n = request_.fields.n;
  for (const PreparedPrompt& prompt : request_.prompts) {
    for (int64_t k = 0; k < n; ++k) {
      const bool shows_ids =
          request_.info.return_token_ids && (choices_.empty() || !request_.info.chat);
      choices_.push_back(std::make_unique<Choice>(*this, static_cast<int32_t>(choices_.size()),
                                                  prompt, shows_ids));
    }
  }
  remaining_ = choices_.size();
  size_t index = 0;
  for (PreparedPrompt& prompt : request_.prompts) {
    const uint64_t group = context_.registry.NextGroup();
    for (int64_t k = 0; k < n && !ended_; ++k, ++index) {
      if (prompt.max_tokens == 0) {
        choices_[index]->EndWithoutTokens();
        continue;
      }
      GenerationRequest submit = request_.submit;
      submit.prompt_ids = prompt.ids;
      submit.max_tokens = prompt.max_tokens;
      submit.min_tokens = std::min(submit.min_tokens, prompt.max_tokens);
      submit.choice = static_cast<uint32_t>(k);
      submit.group_id = group;
      choices_[index]->Submit(std::move(submit));
    }
  }
}

// Everything that can be refused is refused with a status: the stream begins when every choice was
// accepted, or anything came.
void Generation::ChoiceAccepted() {
  if (++accepted_ == choices_.size() && streaming() && !ended_) StartStream();
}

void Generation::StartStream() {
  if (std::exchange(stream_started_, true)) return;
  exchange_->StartStream(headers_);
}

void Generation::FirstToken(int64_t now_ns) {
  if (streaming()) StartStream();
  if (first_token_ns_ != 0) return;
  first_token_ns_ = now_ns;
  context_.metrics.ObserveFirstToken(SecondsBetween(received_ns_, now_ns));
}

void Generation::Flush() {
  if (events_.empty() || ended_) return;
  StartStream();
  exchange_->WriteStream(events_);
  events_.clear();
  if (num_events_ >= 64) context_.metrics.CountEvents(std::exchange(num_events_, 0));
  if (backlogged_ || exchange_->pending_bytes() <= kMaxPendingBytes) return;
  backlogged_ = true;
  exchange_->OnDrained([this] { Resume(); });
}

void Generation::Resume() {
  backlogged_ = false;
  for (const std::unique_ptr<Choice>& choice : choices_) {
    if (ended_ || backlogged_) return;
    choice->Resume();
  }
  Flush();
}

void Generation::ChoiceDone() {
  if (--remaining_ == 0) {
    Complete();
  } else {
    Flush();
  }
}

Usage Generation::TotalUsage() const {
  Usage usage;
  for (const PreparedPrompt& prompt : request_.prompts) {
    usage.prompt_tokens += static_cast<int64_t>(prompt.ids.size());
  }
  // Of each prompt the most that any of its choices found cached; unknown when one never heard.
  usage.cached_tokens = 0;
  const auto n = static_cast<size_t>(request_.fields.n);
  for (size_t first = 0; first < choices_.size(); first += n) {
    std::optional<int64_t> best;
    for (size_t i = first; i < first + n; ++i) {
      usage.completion_tokens += choices_[i]->output().completion_tokens();
      best = std::max(best, choices_[i]->cached_tokens());
    }
    usage.cached_tokens = best.has_value() && usage.cached_tokens.has_value()
                              ? std::optional<int64_t>(*usage.cached_tokens + *best)
                              : std::nullopt;
  }
  return usage;
}

void Generation::Complete() {
  if (ended_) return;
  if (streaming()) {
    CompleteStream();
  } else {
    CompleteWhole();
  }
  End(200, choices_.front()->output().end()->finish_reason);
}

void Generation::CompleteStream() {
  StartStream();
  if (request_.info.include_usage) {
    AppendUsageEvent(request_.info, TotalUsage(), &events_);
    ++num_events_;
  }
  events_ += "data: [DONE]\n\n";
  exchange_->WriteStream(events_);
  exchange_->EndStream();
}

void Generation::CompleteWhole() {
  std::vector<FinishedChoice> finished;
  finished.reserve(choices_.size());
  for (const std::unique_ptr<Choice>& choice : choices_) finished.push_back(choice->TakeFinished());
  HttpResponse response;
  response.headers = headers_;
  response.body = RenderAnswer(request_.info, finished, TotalUsage(), *request_.model->text);
  exchange_->Send(std::move(response));
}

void Generation::Fail(ApiError error) {
  if (ended_) return;
  if (error.status == 429) error.retry_after_s = context_.admission.RetryAfter(NowNs());
  if (stream_started_) {
    events_ += ErrorEvent(error) + "data: [DONE]\n\n";
    exchange_->WriteStream(events_);
    exchange_->EndStream();
  } else {
    HttpResponse response = ErrorResponse(error);
    response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
    exchange_->Send(std::move(response));
  }
  End(error.status, "error");
}

void Generation::ClientGone() {
  context_.metrics.CountClientGone();
  End(499, "abort");
}

void Generation::End(int status, std::string_view finish) {
  if (std::exchange(ended_, true)) return;
  for (const std::unique_ptr<Choice>& choice : choices_) {
    choice->Abandon(finish == "error" ? "error" : "abort");
  }
  context_.metrics.CountEvents(std::exchange(num_events_, 0));
  context_.registry.Remove(this);
  GenerationSummary summary;
  summary.status = status;
  summary.finish = std::string(finish);
  summary.prompt_tokens = TotalUsage().prompt_tokens;
  summary.completion_tokens = TotalUsage().completion_tokens;
  if (first_token_ns_ != 0) {
    summary.first_token_seconds = SecondsBetween(received_ns_, first_token_ns_);
  }
  done_(summary);
  // Callers up the stack may be choices of this: gone only when they have returned.
  exchange_->executor().Post([self = std::move(self_)] {});
}

void GenerationRegistry::Add(const std::shared_ptr<Generation>& generation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  all_.emplace(generation.get(), generation);
}

void GenerationRegistry::Remove(Generation* generation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  all_.erase(generation);
}

int64_t GenerationRegistry::size() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int64_t>(all_.size());
}

void GenerationRegistry::FailAll(const ApiError& error) {
  std::vector<std::shared_ptr<Generation>> alive;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [key, weak] : all_) {
      if (auto generation = weak.lock()) alive.push_back(std::move(generation));
    }
  }
  for (std::shared_ptr<Generation>& generation : alive) {
    IoExecutor& executor = generation->executor();
    executor.Post([generation = std::move(generation), error] { generation->Fail(error); });
  }
}

}  // namespace penstock
