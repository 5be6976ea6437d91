#pragma once

// Makes the WorkerPool over gRPC. The interface is in pool.h.

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "router/pool/balancer.h"
#include "router/pool/pool.h"

namespace penstock {

struct PoolOptions {
  std::vector<std::string> addresses;  // "host:port" or "unix:/path"
  BalancePolicy policy = BalancePolicy::kPowerOfTwo;
  // A worker whose heartbeat (one a second) is missing for so long gets nothing new ...
  std::chrono::milliseconds heartbeat_timeout{4'000};
  // ... and after this its session is given up and its requests go elsewhere.
  std::chrono::milliseconds heartbeat_dead{8'000};
  // With requests running and no turn of the engine thread for so long: nothing new, then given up.
  std::chrono::milliseconds engine_stall{15'000};
  std::chrono::milliseconds engine_dead{60'000};
};

// Starts connecting in the background. InvalidArgument names a bad address. Executors outlive the
// pool; no sink is called after its destruction has begun and the io threads have run dry.
absl::StatusOr<std::unique_ptr<WorkerPool>> CreateWorkerPool(PoolOptions options);

}  // namespace penstock
