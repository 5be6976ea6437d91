#include "worker/engine/mailbox.h"

#include <iterator>
#include <utility>

namespace penstock {
namespace {

size_t BytesOf(const StepEvents& events) {
  size_t bytes =
      events.accepted.size() * sizeof(RequestId) + events.started.size() * sizeof(StartEvent) +
      events.tokens.size() * sizeof(TokenEvent) + events.finished.size() * sizeof(FinishEvent);
  for (const LogprobEvent& event : events.logprobs) {
    bytes += sizeof(event) + event.logprobs.size() * sizeof(TokenLogprob);
  }
  return bytes;
}

template <typename T>
void MoveBehind(std::vector<T>* from, std::vector<T>* to) {
  to->insert(to->end(), std::make_move_iterator(from->begin()),
             std::make_move_iterator(from->end()));
}

}  // namespace

Mailbox::Mailbox(size_t max_bytes, std::function<void()> on_ready,
                 std::function<void()> on_overflow)
    : max_bytes_(max_bytes), on_ready_(std::move(on_ready)), on_overflow_(std::move(on_overflow)) {}

void Mailbox::OnEvents(StepEvents* events) {
  bool was_empty = false;
  bool overflow = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (overflowed_) return;
    was_empty = gathered_.empty();
    bytes_ += BytesOf(*events);
    if (bytes_ > max_bytes_) {
      overflow = overflowed_ = true;
      gathered_ = {};
    } else if (was_empty) {
      std::swap(gathered_, *events);
    } else {
      gathered_.step = events->step;
      MoveBehind(&events->accepted, &gathered_.accepted);
      MoveBehind(&events->started, &gathered_.started);
      MoveBehind(&events->tokens, &gathered_.tokens);
      MoveBehind(&events->logprobs, &gathered_.logprobs);
      MoveBehind(&events->finished, &gathered_.finished);
    }
  }
  if (overflow) {
    on_overflow_();
  } else if (was_empty) {
    on_ready_();
  }
}

bool Mailbox::Take(StepEvents* out) {
  out->Clear();
  std::lock_guard<std::mutex> lock(mutex_);
  std::swap(gathered_, *out);
  bytes_ = 0;
  return !out->empty();
}

}  // namespace penstock
