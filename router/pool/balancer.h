#pragma once

// Which worker gets the next request: an immutable snapshot of ready sessions behind one mutex,
// and the policy over it. Any thread.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "router/pool/worker_port.h"

namespace penstock {

enum class BalancePolicy { kRoundRobin, kPowerOfTwo };

// "round_robin" or "power_of_two".
absl::StatusOr<BalancePolicy> ParseBalancePolicy(std::string_view name);

class Balancer {
 public:
  using Ports = std::vector<std::shared_ptr<WorkerPort>>;

  explicit Balancer(BalancePolicy policy) : policy_(policy) {}

  void SetReady(Ports ports);
  // Null when none is ready. `avoid` names a worker that was tried already: never picked.
  std::shared_ptr<WorkerPort> Pick(const WorkerLoad* avoid = nullptr);
  bool Has(const WorkerLoad* worker) const;
  bool any_ready() const { return !snapshot()->empty(); }
  bool was_ready() const { return was_ready_; }

 private:
  std::shared_ptr<const Ports> snapshot() const;

  const BalancePolicy policy_;
  std::atomic<uint64_t> turn_ = 0;
  std::atomic<bool> was_ready_ = false;
  mutable std::mutex mutex_;
  std::shared_ptr<const Ports> ready_ = std::make_shared<Ports>();  // guarded by mutex_
};

}  // namespace penstock
