#pragma once

// The io threads that requests came from so far, by the top byte of their request ids.

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "router/pool/io_shard.h"

namespace penstock {

namespace v1 {
class SessionDown;
}

class ShardTable {
 public:
  explicit ShardTable(std::shared_ptr<Balancer> balancer) : balancer_(std::move(balancer)) {}

  // The executor's shard, made on first use. At most 256 executors.
  IoShard& ForExecutor(IoExecutor& executor);

  // Splits a session's message by io thread: one batch and one post for each that it concerns.
  void Scatter(const v1::SessionDown& message, uint64_t session) const;
  // Posts SessionLost to every io thread.
  void PostSessionLost(uint64_t session, const absl::Status& status) const;

 private:
  const std::shared_ptr<Balancer> balancer_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<IoShard>> shards_;          // guarded by mutex_
  std::array<std::atomic<IoShard*>, 256> by_index_ = {};  // set once each
};

}  // namespace penstock
