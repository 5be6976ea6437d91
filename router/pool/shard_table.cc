#include "router/pool/shard_table.h"

#include "absl/status/status.h"
#include "common/base/check.h"
#include "common/rpc/rpc_status.h"
#include "penstock/v1/worker.pb.h"

namespace penstock {
namespace {

GenerationEnd EndReason(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_EOS:
      return GenerationEnd::kEos;
    case v1::FINISH_REASON_STOP_ID:
      return GenerationEnd::kStopId;
    case v1::FINISH_REASON_LENGTH:
      return GenerationEnd::kLength;
    case v1::FINISH_REASON_CANCELLED:
      return GenerationEnd::kCancelled;
    case v1::FINISH_REASON_DEADLINE:
      return GenerationEnd::kDeadline;
    default:
      return GenerationEnd::kError;
  }
}

GenerationFinish ReadFinish(const v1::Finish& wire) {
  GenerationFinish finish;
  finish.reason = EndReason(wire.reason());
  const bool names_a_stop =
      finish.reason == GenerationEnd::kEos || finish.reason == GenerationEnd::kStopId;
  finish.stop_id = names_a_stop ? wire.stop_id() : -1;
  if (finish.reason == GenerationEnd::kError) {
    finish.status = absl::Status(StatusCodeFromWire(wire.status_code()), wire.status_message());
    finish.field = wire.status_field();
  }
  finish.prompt_tokens = wire.prompt_tokens();
  finish.cached_tokens = wire.cached_tokens();
  finish.completion_tokens = wire.completion_tokens();
  finish.queue_seconds = wire.queue_seconds();
  finish.prefill_seconds = wire.prefill_seconds();
  finish.decode_seconds = wire.decode_seconds();
  finish.preemptions = wire.preemptions();
  return finish;
}

GenerationLogprobs ReadLogprobs(const v1::LogprobRecord& wire) {
  GenerationLogprobs logprobs{.index = wire.index(), .rank = wire.rank()};
  logprobs.top.reserve(wire.top_size());
  for (const v1::TokenLogprob& top : wire.top()) {
    logprobs.top.push_back({top.token_id(), top.logprob()});
  }
  return logprobs;
}

// One batch per io thread that the message concerns, made when the first event of it is met.
class Batches {
 public:
  explicit Batches(uint64_t session) : session_(session) {}

  ShardBatch& Of(uint64_t request_id) {
    std::shared_ptr<ShardBatch>& batch = batches_[request_id >> 56];
    if (batch == nullptr) {
      batch = std::make_shared<ShardBatch>();
      batch->session = session_;
      used_.push_back(static_cast<uint8_t>(request_id >> 56));
    }
    return *batch;
  }
  const std::vector<uint8_t>& used() const { return used_; }
  std::shared_ptr<ShardBatch> Take(uint8_t shard) { return std::move(batches_[shard]); }

 private:
  const uint64_t session_;
  std::array<std::shared_ptr<ShardBatch>, 256> batches_;
  std::vector<uint8_t> used_;
};

void Fill(const v1::SessionDown& message, Batches* batches) {
  for (const v1::Accepted& accepted : message.accepted()) {
    batches->Of(accepted.request_id()).accepted.push_back(accepted.request_id());
  }
  for (const v1::Started& started : message.started()) {
    batches->Of(started.request_id())
        .started.emplace_back(started.request_id(),
                              GenerationStart{.cached_tokens = started.cached_tokens(),
                                              .queue_seconds = started.queue_seconds(),
                                              .prefill_seconds = started.prefill_seconds()});
  }
  const v1::Step& step = message.step();
  // A short column of a broken worker must not be read past its end.
  const int tokens = std::min({step.request_id_size(), step.token_id_size(), step.index_size()});
  for (int i = 0; i < tokens; ++i) {
    const uint64_t id = step.request_id(i);
    batches->Of(id).tokens.push_back({id, step.token_id(i), step.index(i)});
  }
  for (const v1::LogprobRecord& record : message.logprobs()) {
    batches->Of(record.request_id())
        .logprobs.emplace_back(record.request_id(), ReadLogprobs(record));
  }
  for (const v1::Finish& finish : message.finished()) {
    batches->Of(finish.request_id()).finished.emplace_back(finish.request_id(), ReadFinish(finish));
  }
}

}  // namespace

IoShard& ShardTable::ForExecutor(IoExecutor& executor) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& shard : shards_) {
    if (&shard->executor() == &executor) return *shard;
  }
  const size_t index = shards_.size();
  CHECK(index < by_index_.size());
  shards_.push_back(std::make_shared<IoShard>(static_cast<uint8_t>(index), executor, balancer_));
  by_index_[index].store(shards_.back().get(), std::memory_order_release);
  return *shards_.back();
}

void ShardTable::Scatter(const v1::SessionDown& message, uint64_t session) const {
  Batches batches(session);
  Fill(message, &batches);
  for (const uint8_t index : batches.used()) {
    IoShard* shard = by_index_[index].load(std::memory_order_acquire);
    if (shard == nullptr) continue;  // an id that we never gave out
    shard->executor().Post([shard = shard->shared_from_this(), batch = batches.Take(index)] {
      shard->Deliver(*batch);
    });
  }
}

void ShardTable::PostSessionLost(uint64_t session, const absl::Status& status) const {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& shard : shards_) {
    shard->executor().Post([shard, session, status] { shard->SessionLost(session, status); });
  }
}

}  // namespace penstock
