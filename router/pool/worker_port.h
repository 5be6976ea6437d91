#pragma once

// One open session to one worker, as a request sees it. Implemented by ClientSession.

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "router/pool/pool.h"

namespace penstock {

// Of one worker address, over all its sessions. Also the worker's identity when picking another.
struct WorkerLoad {
  std::atomic<int32_t> in_flight = 0;  // from dispatch to end
};

class WorkerPort {
 public:
  virtual ~WorkerPort() = default;
  // Unique in this process, so that late events of an older session are told apart.
  virtual uint64_t serial() const = 0;
  virtual const std::shared_ptr<WorkerLoad>& load() const = 0;
  // False when the session is over: nothing was sent, and no event will come. Never blocks.
  // emitted: output ids that the client has already. deadline_ms: what is left, 0 = none.
  virtual bool Submit(uint64_t id, const GenerationRequest& request,
                      std::span<const int32_t> emitted, int64_t deadline_ms) = 0;
  virtual void Cancel(uint64_t id) = 0;
};

// A request's claim on a port: counts as in flight while it lives.
class PortLease {
 public:
  PortLease() = default;
  explicit PortLease(std::shared_ptr<WorkerPort> port) : port_(std::move(port)) { Count(1); }
  PortLease(PortLease&& other) noexcept : port_(std::exchange(other.port_, nullptr)) {}
  PortLease& operator=(PortLease&& other) noexcept {
    if (this != &other) {
      Count(-1);
      port_ = std::exchange(other.port_, nullptr);
    }
    return *this;
  }
  ~PortLease() { Count(-1); }

  WorkerPort* get() const { return port_.get(); }
  // 0 = no port; serials begin at 1.
  uint64_t serial() const { return port_ == nullptr ? 0 : port_->serial(); }

 private:
  void Count(int32_t change) {
    if (port_ != nullptr) port_->load()->in_flight += change;
  }
  std::shared_ptr<WorkerPort> port_;
};

}  // namespace penstock
