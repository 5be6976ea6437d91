#include "router/pool/worker_pool.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/rpc/address.h"
#include "router/pool/shard_table.h"
#include "router/pool/worker_link.h"

namespace penstock {
namespace {

constexpr std::chrono::milliseconds kTick{50};

// Shared with the links, whose gRPC calls may end after the pool.
class Hub final : public LinkOwner, public std::enable_shared_from_this<Hub> {
 public:
  explicit Hub(BalancePolicy policy)
      : balancer_(std::make_shared<Balancer>(policy)), shards_(balancer_) {}

  Balancer& balancer() { return *balancer_; }
  ShardTable& shards() { return shards_; }

  void SetLinks(std::vector<std::shared_ptr<WorkerLink>> links) { links_ = std::move(links); }
  const std::vector<std::shared_ptr<WorkerLink>>& links() const { return links_; }

  std::shared_ptr<const ServedModel> model() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return model_;
  }

  AssetCache KnownAssets() const override {
    std::lock_guard<std::mutex> lock(mutex_);
    return assets_;
  }

  absl::Status AcceptModel(const FetchedModel& fetched) override;

  void OnMessage(uint64_t session, const v1::SessionDown& message) override {
    shards_.Scatter(message, session);
  }

  void OnSessionLost(uint64_t session, const absl::Status& status) override {
    shards_.PostSessionLost(session, status);
  }

  void OnReadyChanged() override {
    std::lock_guard<std::mutex> lock(ready_mutex_);  // the latest view is the last one set
    Balancer::Ports ports;
    int32_t max_num_seqs = 0;
    for (const auto& link : links_) {
      if (auto port = link->ReadyPort()) {
        ports.push_back(std::move(port));
        max_num_seqs += link->max_num_seqs();
      }
    }
    if (!ports.empty()) SetMaxNumSeqs(max_num_seqs);
    balancer_->SetReady(std::move(ports));
  }

 private:
  void SetMaxNumSeqs(int32_t max_num_seqs) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (model_ == nullptr || model_->max_num_seqs == max_num_seqs) return;
    auto next = std::make_shared<ServedModel>(*model_);
    next->max_num_seqs = max_num_seqs;
    model_ = std::move(next);
  }

  const std::shared_ptr<Balancer> balancer_;
  ShardTable shards_;
  std::vector<std::shared_ptr<WorkerLink>> links_;  // set once, before the first Tick
  std::mutex ready_mutex_;                          // before a link's and mutex_
  mutable std::mutex mutex_;
  std::shared_ptr<const ServedModel> model_;  // guarded by mutex_
  AssetCache assets_;                         // guarded by mutex_
};

ServedModel MakeServedModel(const FetchedModel& fetched) {
  const v1::ModelInfo& info = fetched.info;
  ServedModel model;
  model.name = info.name();
  model.fingerprint = info.model_fingerprint();
  model.max_model_len = info.max_model_len();
  model.vocab_size = info.vocab_size();
  model.block_size = info.block_size();
  model.max_num_seqs = info.max_num_seqs();
  model.num_kv_blocks = info.num_kv_blocks();
  model.eos_token_ids.assign(info.eos_token_ids().begin(), info.eos_token_ids().end());
  model.format = info.format();
  model.device = info.device();
  model.created = info.created();
  for (const FetchedModel::Asset& asset : fetched.assets) {
    model.assets.push_back({asset.name, *asset.data});
  }
  return model;
}

absl::Status Hub::AcceptModel(const FetchedModel& fetched) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (model_ == nullptr) {
    model_ = std::make_shared<const ServedModel>(MakeServedModel(fetched));
    for (const FetchedModel::Asset& asset : fetched.assets) assets_[asset.sha256] = asset.data;
    LogInfo("model learned name=%s format=\"%s\" max_model_len=%d fingerprint=%s", model_->name,
            model_->format, model_->max_model_len, model_->fingerprint);
    return absl::OkStatus();
  }
  if (fetched.info.model_fingerprint() != model_->fingerprint) {
    return FailedPrecondition(
        "the worker has another model (fingerprint %s, name %s) than this "
        "router serves (%s)",
        fetched.info.model_fingerprint(), fetched.info.name(), model_->fingerprint);
  }
  if (fetched.info.max_model_len() < model_->max_model_len) {
    return FailedPrecondition(
        "the worker's context of %d tokens is shorter than the %d that this "
        "router promises; start all workers with the same --max-model-len",
        fetched.info.max_model_len(), model_->max_model_len);
  }
  return absl::OkStatus();
}

class GrpcWorkerPool final : public WorkerPool {
 public:
  GrpcWorkerPool(const PoolOptions& options, const std::vector<RpcAddress>& addresses)
      : hub_(std::make_shared<Hub>(options.policy)) {
    std::vector<std::shared_ptr<WorkerLink>> links;
    for (const RpcAddress& address : addresses) {
      links.push_back(std::make_shared<WorkerLink>(address, options, hub_));
    }
    hub_->SetLinks(std::move(links));
    keeper_ = std::thread([this] { Keep(); });
  }

  ~GrpcWorkerPool() override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    keeper_.join();
    for (const auto& link : hub_->links()) link->Stop();
    hub_->balancer().SetReady({});
    WaitForCalls();
    hub_->SetLinks({});
  }

  std::unique_ptr<GenerationHandle> Submit(GenerationRequest request, IoExecutor& executor,
                                           GenerationSink& sink) override {
    return hub_->shards().ForExecutor(executor).Submit(std::move(request), sink);
  }
  std::shared_ptr<const ServedModel> model() const override { return hub_->model(); }
  std::vector<WorkerStatus> workers() const override {
    std::vector<WorkerStatus> result;
    for (const auto& link : hub_->links()) {
      result.push_back(link->Status());
      // Ready is what gets requests: the balancer hears of a change a moment after the link.
      result.back().ready = result.back().ready && hub_->balancer().Has(link->load());
    }
    return result;
  }
  bool ready() const override { return hub_->balancer().any_ready(); }
  bool was_ready() const override { return hub_->balancer().was_ready(); }

 private:
  void Keep() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stopping_) {
      lock.unlock();
      const auto now = WorkerLink::Clock::now();
      for (const auto& link : hub_->links()) link->Tick(now);
      lock.lock();
      wake_.wait_for(lock, kTick, [this] { return stopping_; });
    }
  }

  // gRPC's last callbacks; a call that was given up ends at once, a GetModel at its deadline.
  void WaitForCalls() {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto busy = [this] {
      for (const auto& link : hub_->links()) {
        if (link->busy()) return true;
      }
      return false;
    };
    while (busy()) wake_.wait_for(lock, std::chrono::milliseconds(5));
  }

  const std::shared_ptr<Hub> hub_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread keeper_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerPool>> CreateWorkerPool(PoolOptions options) {
  std::vector<RpcAddress> addresses;
  for (const std::string& text : options.addresses) {
    ASSIGN_OR_RETURN(RpcAddress address, ParseRpcAddress(text));
    for (const RpcAddress& other : addresses) {
      if (other.ToString() == address.ToString()) {
        return InvalidArgument("worker address '%s' is given twice", text);
      }
    }
    addresses.push_back(std::move(address));
  }
  return std::make_unique<GrpcWorkerPool>(options, addresses);
}

}  // namespace penstock
