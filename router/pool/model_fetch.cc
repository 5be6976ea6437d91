#include "router/pool/model_fetch.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <chrono>
#include <utility>

#include "common/base/sha256.h"
#include "common/base/status.h"
#include "common/rpc/rpc_status.h"

namespace penstock {
namespace {

constexpr int64_t kMaxAssetsBytes = int64_t{256} << 20;
constexpr std::chrono::seconds kFetchTimeout{20};

class Fetch final : public grpc::ClientReadReactor<v1::GetModelResponse> {
 public:
  Fetch(v1::Worker::StubInterface& stub, std::shared_ptr<grpc::ClientContext> call,
        AssetCache known, std::function<void(absl::StatusOr<FetchedModel>)> done)
      : known_(std::move(known)), done_(std::move(done)), call_(std::move(call)) {
    for (const auto& [sha256, data] : known_) request_.add_have_sha256(sha256);
    call_->set_deadline(std::chrono::system_clock::now() + kFetchTimeout);
    stub.async()->GetModel(call_.get(), &request_, this);
    StartRead(&response_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (status_.ok()) status_ = Take();
    if (!status_.ok()) call_->TryCancel();
    StartRead(&response_);
  }

  void OnDone(const grpc::Status& status) override {
    const std::unique_ptr<Fetch> self(this);
    if (status_.ok()) status_ = FromGrpcStatus(status);
    if (status_.ok()) status_ = CheckComplete();
    if (status_.ok()) {
      done_(std::move(model_));
    } else {
      done_(status_);
    }
  }

 private:
  absl::Status Take() {
    if (response_.has_info()) {
      model_.info = response_.info();
      return absl::OkStatus();
    }
    return response_.has_asset() ? TakePiece(response_.asset()) : absl::OkStatus();
  }

  absl::Status TakePiece(const v1::AssetPiece& piece) {
    if (const auto it = known_.find(piece.sha256()); it != known_.end()) {
      model_.assets.push_back({piece.name(), piece.sha256(), it->second});
      return absl::OkStatus();
    }
    if (piece.offset() == 0) {
      RETURN_IF_ERROR(CloseFile());
      name_ = piece.name();
      sha256_ = piece.sha256();
      expected_ = piece.total_size();
      open_ = true;
      total_ += expected_;
      if (expected_ < 0 || total_ > kMaxAssetsBytes) {
        return Internal("the model's file %s has %d bytes; at most %d are accepted in all", name_,
                        expected_, kMaxAssetsBytes);
      }
    }
    if (!open_ || piece.name() != name_ || piece.offset() != static_cast<int64_t>(data_.size()) ||
        piece.offset() + static_cast<int64_t>(piece.data().size()) > expected_) {
      return Internal("the model's file %s came in a wrong order", piece.name());
    }
    data_ += piece.data();
    return static_cast<int64_t>(data_.size()) == expected_ ? CloseFile() : absl::OkStatus();
  }

  absl::Status CloseFile() {
    if (!std::exchange(open_, false)) return absl::OkStatus();
    if (static_cast<int64_t>(data_.size()) != expected_ || HexEncode(Sha256(data_)) != sha256_) {
      return Internal("the model's file %s came damaged: %d of %d bytes", name_, data_.size(),
                      expected_);
    }
    model_.assets.push_back(
        {name_, sha256_, std::make_shared<const std::string>(std::exchange(data_, {}))});
    return absl::OkStatus();
  }

  absl::Status CheckComplete() {
    RETURN_IF_ERROR(CloseFile());
    if (model_.info.model_fingerprint().empty()) {
      return Internal("the worker did not say which model it has");
    }
    return absl::OkStatus();
  }

  const AssetCache known_;
  const std::function<void(absl::StatusOr<FetchedModel>)> done_;
  const std::shared_ptr<grpc::ClientContext> call_;
  v1::GetModelRequest request_;
  v1::GetModelResponse response_;
  FetchedModel model_;
  absl::Status status_;
  std::string name_, sha256_, data_;  // of the file that is coming
  int64_t expected_ = 0;
  int64_t total_ = 0;
  bool open_ = false;
};

}  // namespace

std::shared_ptr<grpc::ClientContext> FetchModel(
    v1::Worker::StubInterface& stub, AssetCache known,
    std::function<void(absl::StatusOr<FetchedModel>)> done) {
  auto call = std::make_shared<grpc::ClientContext>();
  new Fetch(stub, call, std::move(known), std::move(done));  // NOLINT: deletes itself in OnDone
  return call;
}

}  // namespace penstock
