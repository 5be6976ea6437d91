#include "worker/service/model_calls.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "common/rpc/rpc_status.h"

namespace penstock {
namespace {

void FillInfo(const ServiceContext& context, v1::ModelInfo* info) {
  const WorkerIdentity& identity = context.identity;
  const EngineLimits& limits = context.engine.limits();
  const RunnerInfo& runner = context.engine.runner_info();
  info->set_name(identity.name);
  info->set_model_fingerprint(identity.fingerprint);
  info->set_worker_epoch(context.epoch);
  info->set_max_model_len(limits.max_model_len);
  info->set_vocab_size(limits.vocab_size);
  info->set_block_size(limits.block_size);
  info->set_max_num_seqs(limits.max_num_seqs);
  info->set_max_num_batched_tokens(limits.max_num_batched_tokens);
  for (const int32_t id : identity.eos_token_ids) info->add_eos_token_ids(id);
  info->set_format(identity.format);
  info->set_device(runner.device);
  info->set_weight_bytes(runner.weight_bytes);
  int32_t blocks = 0;
  for (const KvGroupInfo& group : runner.kv_groups) blocks += group.num_blocks;
  info->set_num_kv_blocks(blocks);
  info->set_created(identity.created);
  info->set_version(identity.version);
}

// Info, then every asset in pieces. One write at a time; nothing else touches it.
class GetModel final : public grpc::ServerWriteReactor<v1::GetModelResponse> {
 public:
  GetModel(const ServiceContext& context, const v1::GetModelRequest& request)
      : context_(context), have_(request.have_sha256().begin(), request.have_sha256().end()) {
    FillInfo(context_, response_.mutable_info());
    StartWrite(&response_);
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    if (asset_ == context_.identity.assets.size()) return Finish(grpc::Status::OK);
    NextPiece();
    StartWrite(&response_);
  }
  void OnDone() override { delete this; }

 private:
  void NextPiece() {
    const ModelAssetFile& asset = context_.identity.assets[asset_];
    const auto total = static_cast<int64_t>(asset.data.size());
    v1::AssetPiece* piece = response_.mutable_asset();
    piece->set_name(asset.name);
    piece->set_sha256(asset.sha256);
    piece->set_total_size(total);
    piece->set_offset(offset_);
    const bool had = std::find(have_.begin(), have_.end(), asset.sha256) != have_.end();
    const int64_t size = had ? 0 : std::min(kMaxAssetPieceBytes, total - offset_);
    piece->set_data(asset.data.data() + offset_, static_cast<size_t>(size));
    offset_ += size;
    if (had || offset_ == total) {
      offset_ = 0;
      ++asset_;
    }
  }

  const ServiceContext& context_;
  const std::vector<std::string> have_;
  v1::GetModelResponse response_;
  size_t asset_ = 0;
  int64_t offset_ = 0;
};

class WatchLoad final : public grpc::ServerWriteReactor<v1::Load>, public LongLived {
 public:
  WatchLoad(ServiceContext& context, int32_t interval_ms)
      : context_(context), ticks_per_message_(std::max(1, (interval_ms + 500) / 1000)) {}

  static grpc::ServerWriteReactor<v1::Load>* Start(ServiceContext& context, int32_t interval_ms) {
    auto watch = std::make_shared<WatchLoad>(context, interval_ms);
    watch->self_ = watch;
    context.AddLongLived(watch);
    watch->Write();
    return watch.get();
  }

  void Tick() override {
    if (++ticks_ % ticks_per_message_ == 0) Write();
  }
  void Stop() override { Close(grpc::Status::OK); }
  void OnWriteDone(bool ok) override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      writing_ = false;
      if (closed_) return Finish(status_);
    }
    if (!ok) Close(grpc::Status::CANCELLED);
  }
  void OnCancel() override { Close(grpc::Status::CANCELLED); }
  void OnDone() override { self_.reset(); }

 private:
  void Write() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (writing_ || closed_) return;  // a slow reader gets fewer messages
    context_.FillLoad(&load_);
    writing_ = true;
    StartWrite(&load_);
  }
  void Close(const grpc::Status& status) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (std::exchange(closed_, true)) return;
    status_ = status;
    if (!writing_) Finish(status_);
  }

  ServiceContext& context_;
  const int32_t ticks_per_message_;
  int32_t ticks_ = 0;  // the writer thread's
  std::shared_ptr<WatchLoad> self_;
  std::mutex mutex_;  // guards the rest
  v1::Load load_;
  bool writing_ = false;
  bool closed_ = false;
  grpc::Status status_;
};

}  // namespace

grpc::ServerWriteReactor<v1::GetModelResponse>* StartGetModel(const ServiceContext& context,
                                                              const v1::GetModelRequest& request) {
  return new GetModel(context, request);
}

grpc::ServerWriteReactor<v1::Load>* StartWatchLoad(ServiceContext& context,
                                                   const v1::WatchLoadRequest& request) {
  return WatchLoad::Start(context, request.interval_ms());
}

}  // namespace penstock
