#pragma once

// One generation request being answered: its choices on the workers, its client, and everything
// that can end either. Lives on the exchange's io thread and owns itself until the answer ended.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "router/api/metrics.h"
#include "router/api/prepare.h"
#include "router/http/http.h"

namespace penstock {

class GenerationRegistry;

// What a generation needs of the server; outlives it.
struct GenerationContext {
  const ApiOptions& options;
  WorkerPool& pool;
  Metrics& metrics;
  Admission& admission;
  GenerationRegistry& registry;
};

// How it ended, for the access log.
struct GenerationSummary {
  int status = 200;
  std::string finish;  // of the first choice, "abort" or "error"
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  double first_token_seconds = -1;
};

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  using Done = std::function<void(const GenerationSummary&)>;

  // Submits everything and answers on the exchange, in its own time. headers go with every answer;
  // done is called once.
  static void Start(const GenerationContext& context, std::shared_ptr<HttpExchange> exchange,
                    PreparedRequest request, HttpHeaders headers, Done done);

  ~Generation();
  // Ends it with an error: a status when nothing was sent yet, else an event. On its io thread.
  void Fail(ApiError error);
  IoExecutor& executor() { return exchange_->executor(); }

 private:
  class Choice;

  Generation(const GenerationContext& context, std::shared_ptr<HttpExchange> exchange,
             PreparedRequest request, HttpHeaders headers, Done done);

  void Submit();
  void ChoiceAccepted();
  void FirstToken(int64_t now_ns);
  void ChoiceDone();
  void Complete();
  void CompleteStream();
  void CompleteWhole();
  void ClientGone();
  void End(int status, std::string_view finish);
  void StartStream();
  void Flush();
  void Resume();
  Usage TotalUsage() const;
  bool streaming() const { return request_.fields.stream; }

  const GenerationContext context_;
  const std::shared_ptr<HttpExchange> exchange_;
  PreparedRequest request_;
  HttpHeaders headers_;
  Done done_;
  const int64_t received_ns_;
  std::vector<std::unique_ptr<Choice>> choices_;
  size_t accepted_ = 0;
  size_t remaining_ = 0;
  bool stream_started_ = false;
  bool ended_ = false;
  bool backlogged_ = false;  // the client takes less than comes: ids wait unrendered
  std::string events_;       // of this step
  uint64_t num_events_ = 0;  // not counted in the metrics yet
  int64_t first_token_ns_ = 0;
  std::shared_ptr<Generation> self_;  // until the end
};

// All generations of all io threads, for draining. Any thread.
class GenerationRegistry {
 public:
  // Names the choices of one prompt to the worker.
  uint64_t NextGroup() { return next_group_.fetch_add(1, std::memory_order_relaxed); }
  void Add(const std::shared_ptr<Generation>& generation);
  void Remove(Generation* generation);
  int64_t size() const;
  // Posts Fail(error) to each.
  void FailAll(const ApiError& error);

 private:
  std::atomic<uint64_t> next_group_ = 1;
  mutable std::mutex mutex_;
  std::unordered_map<Generation*, std::weak_ptr<Generation>> all_;  // guarded by mutex_
};

}  // namespace penstock
