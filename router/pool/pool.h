#pragma once

// What router/api asks of the workers: submit ids, get events back on the caller's own io thread.
// gRPC stays behind this header. A GenerationSink lives on one io thread and is called only there.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock {

// Runs a task on one router thread's io_context. Implemented by router/http; one per io thread.
class IoExecutor {
 public:
  virtual ~IoExecutor() = default;
  virtual void Post(std::function<void()> task) = 0;
};

struct GenerationLogprob {
  int32_t token_id = 0;
  float logprob = 0;
};

struct GenerationLogprobs {
  int32_t index = 0;  // position in the output
  int32_t rank = 0;
  std::vector<GenerationLogprob> top;  // the sampled token first
};

// What the worker says with the first token.
struct GenerationStart {
  int32_t cached_tokens = 0;
  double queue_seconds = 0;
  double prefill_seconds = 0;
};

enum class GenerationEnd { kEos, kStopId, kLength, kCancelled, kDeadline, kError };

struct GenerationFinish {
  GenerationEnd reason = GenerationEnd::kEos;
  int32_t stop_id = -1;
  absl::Status status;  // with kError; its message is fit for the client
  std::string field;    // the request field at fault, if any
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;
  int32_t completion_tokens = 0;
  double queue_seconds = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;
  int32_t preemptions = 0;
};

// Receives one choice's events, in order, on its io thread: OnAccepted once, OnStarted once (again
// when another worker resumes it), then tokens (logprobs of a token come before it), then OnFinish
// once, after which the sink is never called again. A request that is refused gets OnFinish with
// kError and no OnAccepted.
class GenerationSink {
 public:
  virtual ~GenerationSink() = default;
  virtual void OnAccepted() = 0;
  virtual void OnStarted(const GenerationStart& start) = 0;
  virtual void OnLogprobs(GenerationLogprobs logprobs) = 0;
  virtual void OnToken(int32_t token_id, int32_t index) = 0;
  // After the last OnToken of one engine step: write what is rendered.
  virtual void OnStepEnd() = 0;
  virtual void OnFinish(GenerationFinish finish) = 0;
};

// One choice of one request, in the pool's words (the proto stays inside).
struct GenerationRequest {
  std::vector<int32_t> prompt_ids;
  float temperature = 1;
  float top_p = 1;
  int32_t top_k = 0;
  float min_p = 0;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  float repetition_penalty = 1;
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::vector<int32_t> allowed_token_ids;
  uint64_t seed = 0;  // always set: the router draws one
  uint32_t choice = 0;
  int32_t max_tokens = 0;
  int32_t min_tokens = 0;
  std::vector<int32_t> stop_token_ids;
  bool ignore_eos = false;
  int32_t top_logprobs = -1;  // -1 = off
  bool processed_logprobs = false;
  int32_t priority = 0;
  int64_t deadline_ms = 0;  // 0 = none
  std::string cache_salt;
  std::string trace_id;
  uint64_t group_id = 0;
};

// Cancel is idempotent; destroying the handle cancels too, and no sink call follows either.
// Used on the sink's io thread only.
class GenerationHandle {
 public:
  virtual ~GenerationHandle() = default;
  virtual void Cancel() = 0;
};

// A model as the router serves it: made from GetModel, immutable.
struct ModelAsset {
  std::string name;
  std::string data;
};
struct ServedModel {
  std::string name;  // the worker's name for it
  std::string fingerprint;
  int32_t max_model_len = 0;
  int32_t vocab_size = 0;
  int32_t block_size = 0;
  int32_t max_num_seqs = 0;  // summed over workers
  int32_t num_kv_blocks = 0;
  std::vector<int32_t> eos_token_ids;
  std::string format;
  std::string device;
  int64_t created = 0;
  std::vector<ModelAsset> assets;  // what common/text loads
};

struct WorkerStatus {
  std::string address;
  bool ready = false;
  std::string reason;     // why not ready
  int32_t in_flight = 0;  // counted by the router, from dispatch to end
  int32_t running = 0;
  int32_t waiting = 0;
  int32_t total_blocks = 0;
  int32_t free_blocks = 0;
  int32_t cached_blocks = 0;
  uint64_t prefix_queries = 0;
  uint64_t prefix_hits = 0;
  uint64_t preemptions = 0;
  uint64_t steps = 0;
  int64_t engine_age_ms = 0;
  uint64_t prompt_tokens = 0;
  uint64_t generation_tokens = 0;
  uint64_t waiting_tokens = 0;
  uint64_t nonfinite_requests = 0;
  bool draining = false;
  // Counted by the router since it started.
  uint64_t connects = 0;  // sessions opened
  uint64_t breaks = 0;    // sessions lost after they were open
};

class WorkerPool {
 public:
  virtual ~WorkerPool() = default;
  // Sends to a worker picked by the policy; never blocks. The sink outlives the handle. With no
  // worker ready the sink gets OnFinish(kError, Unavailable) soon. Called on io thread `executor`.
  virtual std::unique_ptr<GenerationHandle> Submit(GenerationRequest request, IoExecutor& executor,
                                                   GenerationSink& sink) = 0;
  // Null until the first worker was reached.
  virtual std::shared_ptr<const ServedModel> model() const = 0;
  virtual std::vector<WorkerStatus> workers() const = 0;
  virtual bool ready() const = 0;
  // Whether a worker has been ready at any time.
  virtual bool was_ready() const = 0;
};

}  // namespace penstock
