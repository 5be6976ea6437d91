#include "worker/service/service_context.h"

#include <random>

#include "penstock/v1/worker.pb.h"

namespace penstock {
namespace {

uint64_t RandomEpoch() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace

ServiceContext::ServiceContext(Engine& engine_in, WorkerIdentity identity_in,
                               std::shared_ptr<const TextModel> text_in, int text_threads)
    : engine(engine_in),
      identity(std::move(identity_in)),
      text(std::move(text_in)),
      limits{.max_model_len = engine.limits().max_model_len,
             .vocab_size = engine.limits().vocab_size,
             .eos_token_ids = identity.eos_token_ids},
      epoch(RandomEpoch()),
      texts(std::make_shared<WorkThreads>(text_threads)),
      writer(std::make_shared<WorkThreads>(1)) {
  writer->Every(std::chrono::seconds(1), [this] {
    for (const auto& call : LiveCalls()) call->Tick();
    return true;
  });
}

ServiceContext::~ServiceContext() {
  writer->Stop();
  texts->Stop();
}

std::vector<std::shared_ptr<LongLived>> ServiceContext::LiveCalls() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::shared_ptr<LongLived>> live;
  std::erase_if(long_lived_, [&live](const std::weak_ptr<LongLived>& weak) {
    auto call = weak.lock();
    if (call == nullptr) return true;
    live.push_back(std::move(call));
    return false;
  });
  return live;
}

void ServiceContext::AddLongLived(std::weak_ptr<LongLived> call) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (stopping_) {
    writer->Post([call] {
      if (const auto live = call.lock()) live->Stop();
    });
  }
  long_lived_.push_back(std::move(call));
}

void ServiceContext::StopLongLived() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  for (const auto& call : LiveCalls()) call->Stop();
}

void ServiceContext::FillHello(v1::Hello* hello) const {
  const EngineLimits& engine_limits = engine.limits();
  hello->set_protocol_version(kProtocolVersion);
  hello->set_worker_epoch(epoch);
  hello->set_model_fingerprint(identity.fingerprint);
  hello->set_block_size(engine_limits.block_size);
  hello->set_max_model_len(engine_limits.max_model_len);
  hello->set_max_num_seqs(engine_limits.max_num_seqs);
  hello->set_max_queued_requests(engine_limits.max_queued_requests);
}

void ServiceContext::FillLoad(v1::Load* load) const {
  PackLoad(engine.Stats(), SteadyNowNs(), draining.load(), load);
}

}  // namespace penstock
