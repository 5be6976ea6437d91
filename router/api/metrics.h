#pragma once

// Everything that /metrics says: the router's own penstock_* names, and vLLM's vllm:* names with
// the same labels and buckets, so that existing dashboards work. Any thread.

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "router/api/admission.h"
#include "router/pool/pool.h"

namespace penstock {

// Seconds between the tokens of one choice, counted locally: a token costs an increment, and the
// shared histogram is touched once in a while.
struct TokenGaps {
  static constexpr size_t kBuckets = 20;  // the last one is +Inf
  std::array<uint32_t, kBuckets> counts = {};
  uint32_t total = 0;
  double sum_seconds = 0;
  void Add(double seconds);
};

// One finished choice.
struct ChoiceStats {
  std::string_view reason;  // "stop", "length", "abort", "error"
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t max_tokens = 0;
  double e2e_seconds = 0;
  double decode_seconds = 0;  // first token to last
  double queue_seconds = -1;  // the worker's figures; negative: not known
  double prefill_seconds = -1;
};

class Metrics {
 public:
  Metrics(std::string version, bool vllm_names);
  ~Metrics();

  // Once, when the model's name is known; before it the model's metrics are absent.
  void SetModel(const std::string& name, const ServedModel& model);

  void CountHttp(std::string_view route, std::string_view method, int status);
  void ObserveFirstToken(double seconds);
  void ObservePrepare(double seconds);  // parsing, template and tokenizer
  void AddGaps(TokenGaps* gaps);        // and resets them
  void CountEvents(uint64_t events);
  void CountClientGone();
  void CountRefused(std::string_view reason);
  void ObserveRequest(int64_t n);
  void ObserveChoice(const ChoiceStats& stats);

  // The text of /metrics.
  std::string Render(const std::vector<WorkerStatus>& workers, const Admission& admission,
                     int64_t in_flight) const;

 private:
  struct Own;
  struct Model;
  std::unique_ptr<Own> own_;
  std::unique_ptr<Model> model_;  // set once; model_ready_ says when it can be used
  std::atomic<bool> model_ready_ = false;
  const bool vllm_names_;
};

}  // namespace penstock
