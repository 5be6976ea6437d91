#pragma once

// The requests of one io thread: owns their state, delivers events to their sinks, and moves them
// to another worker when theirs is lost. Everything but the constructor runs on that io thread.

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "router/pool/balancer.h"
#include "router/pool/pool.h"
#include "router/pool/worker_port.h"

namespace penstock {

// What one message of a session holds for one io thread.
struct ShardBatch {
  struct Token {
    uint64_t id = 0;
    int32_t token_id = 0;
    int32_t index = 0;
  };
  uint64_t session = 0;  // WorkerPort::serial
  std::vector<uint64_t> accepted;
  std::vector<std::pair<uint64_t, GenerationStart>> started;
  std::vector<std::pair<uint64_t, GenerationLogprobs>> logprobs;
  std::vector<Token> tokens;
  std::vector<std::pair<uint64_t, GenerationFinish>> finished;
};

class IoShard : public std::enable_shared_from_this<IoShard> {
 public:
  // index is the top byte of this thread's request ids.
  IoShard(uint8_t index, IoExecutor& executor, std::shared_ptr<Balancer> balancer)
      : index_(index), executor_(executor), balancer_(std::move(balancer)) {}

  IoExecutor& executor() { return executor_; }
  std::unique_ptr<GenerationHandle> Submit(GenerationRequest request, GenerationSink& sink);
  void Cancel(uint64_t id);
  void Deliver(ShardBatch& batch);
  // The session is lost: its requests are resumed elsewhere, or end with this status.
  void SessionLost(uint64_t session, const absl::Status& status);
  size_t size() const { return streams_.size(); }

 private:
  struct Stream {
    GenerationRequest request;
    GenerationSink* sink = nullptr;
    PortLease port;
    std::vector<int32_t> emitted;              // what the client has: the start of a resumption
    std::vector<GenerationLogprobs> logprobs;  // of tokens that have not come yet
    int64_t deadline_ns = 0;                   // steady clock, 0 = none
    bool accepted = false;
    int moves = 0;            // to another worker
    uint64_t last_batch = 0;  // in which it got a token
  };

  Stream* Find(uint64_t id);
  Stream* Find(uint64_t id, uint64_t session);
  void DeliverToken(const ShardBatch::Token& token, uint64_t session);
  void DeliverLogprobs(uint64_t id, Stream* stream, int32_t index);
  void Finish(uint64_t id, GenerationFinish finish);
  void Fail(uint64_t id, absl::Status status);
  static GenerationFinish EndOf(const Stream& stream, GenerationEnd reason);
  bool Dispatch(uint64_t id, Stream& stream, const WorkerLoad* avoid);
  bool Move(uint64_t id, Stream& stream);
  bool MayMove(const Stream& stream, const absl::Status& status) const;

  const uint8_t index_;
  IoExecutor& executor_;
  const std::shared_ptr<Balancer> balancer_;
  uint64_t next_ = 1;
  uint64_t batch_ = 0;
  // Streams that got tokens in the batch being delivered; a pointer holds while none was erased.
  std::vector<std::pair<uint64_t, Stream*>> touched_;
  uint64_t erased_ = 0;
  boost::unordered_flat_map<uint64_t, std::unique_ptr<Stream>> streams_;
};

}  // namespace penstock
