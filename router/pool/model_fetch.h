#pragma once

// One GetModel call: limits and the text layer's files of a worker, checked against their hashes.

#include <grpcpp/client_context.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "penstock/v1/worker.grpc.pb.h"

namespace penstock {

// Files by sha256 (hex), shared by all workers of one pool.
using AssetCache = std::map<std::string, std::shared_ptr<const std::string>>;

struct FetchedModel {
  struct Asset {
    std::string name;
    std::string sha256;
    std::shared_ptr<const std::string> data;
  };
  v1::ModelInfo info;
  std::vector<Asset> assets;
};

// Calls back once, on a gRPC thread. Files in `known` are not transferred again. The result is for
// TryCancel.
std::shared_ptr<grpc::ClientContext> FetchModel(
    v1::Worker::StubInterface& stub, AssetCache known,
    std::function<void(absl::StatusOr<FetchedModel>)> done);

}  // namespace penstock
