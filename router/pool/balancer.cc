#include "router/pool/balancer.h"

#include <utility>

#include "common/base/status.h"

namespace penstock {
namespace {

// Spreads consecutive numbers over all 64 bits (a bijection): cheap random choices without a lock.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

absl::StatusOr<BalancePolicy> ParseBalancePolicy(std::string_view name) {
  if (name == "round_robin") return BalancePolicy::kRoundRobin;
  if (name == "power_of_two") return BalancePolicy::kPowerOfTwo;
  return InvalidArgument("policy '%s' is not known: use round_robin or power_of_two", name);
}

void Balancer::SetReady(Ports ports) {
  if (!ports.empty()) was_ready_ = true;
  auto next = std::make_shared<const Ports>(std::move(ports));
  std::lock_guard<std::mutex> lock(mutex_);
  ready_.swap(next);
}

std::shared_ptr<const Balancer::Ports> Balancer::snapshot() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return ready_;
}

bool Balancer::Has(const WorkerLoad* worker) const {
  for (const auto& port : *snapshot()) {
    if (port->load().get() == worker) return true;
  }
  return false;
}

std::shared_ptr<WorkerPort> Balancer::Pick(const WorkerLoad* avoid) {
  std::shared_ptr<const Ports> ports = snapshot();
  if (avoid != nullptr) {
    Ports others;
    for (const auto& port : *ports) {
      if (port->load().get() != avoid) others.push_back(port);
    }
    ports = std::make_shared<const Ports>(std::move(others));
  }
  const size_t count = ports->size();
  if (count == 0) return nullptr;
  const uint64_t turn = turn_.fetch_add(1, std::memory_order_relaxed);
  if (policy_ == BalancePolicy::kRoundRobin || count == 1) return (*ports)[turn % count];
  const uint64_t random = Mix(turn);
  const size_t first = (random & 0xffffffff) % count;
  const size_t second = (first + 1 + (random >> 32) % (count - 1)) % count;
  const auto load = [&ports](size_t i) { return (*ports)[i]->load()->in_flight.load(); };
  return (*ports)[load(second) < load(first) ? second : first];
}

}  // namespace penstock
