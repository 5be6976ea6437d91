#include "router/pool/io_shard.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/status.h"

namespace penstock {
namespace {

// A request that has shown nothing is tried once more; a running one may outlive a few workers, so
// that a request that kills its worker does not kill them all.
constexpr int kMaxRetries = 1;
constexpr int kMaxResumptions = 3;

int64_t NowNs() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

class Handle final : public GenerationHandle {
 public:
  Handle(std::shared_ptr<IoShard> shard, uint64_t id) : shard_(std::move(shard)), id_(id) {}
  ~Handle() override { shard_->Cancel(id_); }
  void Cancel() override { shard_->Cancel(id_); }

 private:
  const std::shared_ptr<IoShard> shard_;
  const uint64_t id_;
};

}  // namespace

std::unique_ptr<GenerationHandle> IoShard::Submit(GenerationRequest request, GenerationSink& sink) {
  const uint64_t id = uint64_t{index_} << 56 | next_++;
  auto stream = std::make_unique<Stream>();
  stream->sink = &sink;
  if (request.deadline_ms > 0) {
    stream->deadline_ns = NowNs() + std::min(request.deadline_ms, int64_t{1} << 40) * 1'000'000;
  }
  stream->request = std::move(request);
  const bool sent = Dispatch(id, *stream, nullptr);
  streams_.emplace(id, std::move(stream));
  if (!sent) {
    executor_.Post([shard = shared_from_this(), id] {
      shard->Fail(id, absl::UnavailableError("no worker is ready; try again soon"));
    });
  }
  return std::make_unique<Handle>(shared_from_this(), id);
}

void IoShard::Cancel(uint64_t id) {
  const auto it = streams_.find(id);
  if (it == streams_.end()) return;
  const std::unique_ptr<Stream> stream = std::move(it->second);
  streams_.erase(it);
  ++erased_;
  if (stream->port.get() != nullptr) stream->port.get()->Cancel(id);
}

IoShard::Stream* IoShard::Find(uint64_t id) {
  const auto it = streams_.find(id);
  return it == streams_.end() ? nullptr : it->second.get();
}

IoShard::Stream* IoShard::Find(uint64_t id, uint64_t session) {
  Stream* stream = Find(id);
  return stream != nullptr && stream->port.serial() == session ? stream : nullptr;
}

// A sink may cancel its request, or submit others, from any callback: after each of them the
// stream is looked up anew.
void IoShard::Deliver(ShardBatch& batch) {
  ++batch_;
  touched_.clear();
  const uint64_t erased = erased_;
  for (const uint64_t id : batch.accepted) {
    Stream* stream = Find(id, batch.session);
    if (stream == nullptr || std::exchange(stream->accepted, true)) continue;
    stream->sink->OnAccepted();
  }
  for (const auto& [id, start] : batch.started) {
    if (Stream* stream = Find(id, batch.session)) stream->sink->OnStarted(start);
  }
  for (auto& [id, logprobs] : batch.logprobs) {
    if (Stream* stream = Find(id, batch.session)) stream->logprobs.push_back(std::move(logprobs));
  }
  for (const ShardBatch::Token& token : batch.tokens) DeliverToken(token, batch.session);
  for (const auto& [id, seen] : touched_) {
    Stream* stream = erased_ == erased ? seen : Find(id, batch.session);
    if (stream != nullptr) stream->sink->OnStepEnd();
  }
  for (auto& [id, finish] : batch.finished) {
    Stream* stream = Find(id, batch.session);
    if (stream == nullptr) continue;
    const bool failed = finish.reason == GenerationEnd::kError;
    if (failed && MayMove(*stream, finish.status) && Move(id, *stream)) continue;
    Finish(id, std::move(finish));
  }
}

void IoShard::DeliverToken(const ShardBatch::Token& token, uint64_t session) {
  Stream* stream = Find(token.id, session);
  if (stream == nullptr) return;  // cancelled, or from before a resumption
  const auto expected = static_cast<int32_t>(stream->emitted.size());
  if (token.index < expected) return;  // the client has it
  if (token.index > expected) {
    stream->port.get()->Cancel(token.id);
    return Fail(token.id,
                Internal("the worker skipped from output token %d to %d", expected, token.index));
  }
  stream->emitted.push_back(token.token_id);
  if (std::exchange(stream->last_batch, batch_) != batch_) touched_.emplace_back(token.id, stream);
  if (!stream->logprobs.empty()) {
    DeliverLogprobs(token.id, stream, token.index);
    stream = Find(token.id, session);
    if (stream == nullptr) return;
  }
  stream->sink->OnToken(token.token_id, token.index);
}

void IoShard::DeliverLogprobs(uint64_t id, Stream* stream, int32_t index) {
  std::vector<GenerationLogprobs>& waiting = stream->logprobs;
  const auto it = std::find_if(waiting.begin(), waiting.end(),
                               [index](const auto& l) { return l.index == index; });
  if (it == waiting.end()) return;
  GenerationLogprobs logprobs = std::move(*it);
  waiting.erase(waiting.begin(), it + 1);  // earlier ones belong to tokens from before
  Find(id)->sink->OnLogprobs(std::move(logprobs));
}

void IoShard::Finish(uint64_t id, GenerationFinish finish) {
  const auto it = streams_.find(id);
  const std::unique_ptr<Stream> stream = std::move(it->second);
  streams_.erase(it);
  ++erased_;
  stream->port = PortLease();
  stream->sink->OnFinish(std::move(finish));
}

void IoShard::Fail(uint64_t id, absl::Status status) {
  const Stream* stream = Find(id);
  if (stream == nullptr) return;
  GenerationFinish finish = EndOf(*stream, GenerationEnd::kError);
  finish.status = std::move(status);
  Finish(id, std::move(finish));
}

// With the counts that the router knows itself.
GenerationFinish IoShard::EndOf(const Stream& stream, GenerationEnd reason) {
  GenerationFinish finish;
  finish.reason = reason;
  finish.prompt_tokens = static_cast<int32_t>(stream.request.prompt_ids.size());
  finish.completion_tokens = static_cast<int32_t>(stream.emitted.size());
  return finish;
}

bool IoShard::Dispatch(uint64_t id, Stream& stream, const WorkerLoad* avoid) {
  int64_t left_ms = 0;
  if (stream.deadline_ns != 0) {
    left_ms = std::max<int64_t>(1, (stream.deadline_ns - NowNs()) / 1'000'000);
  }
  // A session may end between Pick and Submit; then the snapshot is about to change.
  for (int attempt = 0; attempt < 3; ++attempt) {
    PortLease port(balancer_->Pick(avoid));
    if (port.get() == nullptr) return false;
    if (port.get()->Submit(id, stream.request, stream.emitted, left_ms)) {
      stream.port = std::move(port);
      return true;
    }
  }
  return false;
}

bool IoShard::MayMove(const Stream& stream, const absl::Status& status) const {
  if (!stream.emitted.empty()) {
    return absl::IsUnavailable(status) && stream.moves < kMaxResumptions;
  }
  // A full queue is refused before Accepted: another worker may have room.
  return stream.moves < kMaxRetries &&
         (absl::IsUnavailable(status) || (absl::IsResourceExhausted(status) && !stream.accepted));
}

bool IoShard::Move(uint64_t id, Stream& stream) {
  ++stream.moves;
  stream.logprobs.clear();
  return Dispatch(id, stream, stream.port.get()->load().get());
}

void IoShard::SessionLost(uint64_t session, const absl::Status& status) {
  std::vector<uint64_t> ids;
  for (const auto& [id, stream] : streams_) {
    if (stream->port.serial() == session) ids.push_back(id);
  }
  for (const uint64_t id : ids) {
    Stream* stream = Find(id, session);
    if (stream == nullptr) continue;
    if (static_cast<int32_t>(stream->emitted.size()) >= stream->request.max_tokens) {
      // Only the Finish was lost, and this is what it would have said.
      Finish(id, EndOf(*stream, GenerationEnd::kLength));
    } else if (!MayMove(*stream, status) || !Move(id, *stream)) {
      Fail(id, status);
    }
  }
}

}  // namespace penstock
