#include "router/api/worker_metrics.h"

#include <functional>

#include "absl/strings/str_format.h"

namespace penstock {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

ClientMetric Sample(MetricType type, Labels labels, double value) {
  ClientMetric metric;
  metric.label = std::move(labels);
  if (type == MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  return metric;
}

// One family with one sample per worker.
class FamilyMaker {
 public:
  using LabelsOf = std::function<Labels(size_t, const WorkerStatus&)>;
  using ValueOf = std::function<double(const WorkerStatus&)>;

  FamilyMaker(const std::vector<WorkerStatus>& workers, LabelsOf labels)
      : workers_(workers), labels_(std::move(labels)) {}

  void Add(const char* name, const char* help, MetricType type, const ValueOf& value) {
    MetricFamily family{name, help, type, {}};
    for (size_t i = 0; i < workers_.size(); ++i) {
      family.metric.push_back(Sample(type, labels_(i, workers_[i]), value(workers_[i])));
    }
    families_.push_back(std::move(family));
  }
  void Gauge(const char* name, const char* help, const ValueOf& value) {
    Add(name, help, MetricType::Gauge, value);
  }
  void Counter(const char* name, const char* help, const ValueOf& value) {
    Add(name, help, MetricType::Counter, value);
  }
  std::vector<MetricFamily>& families() { return families_; }

 private:
  const std::vector<WorkerStatus>& workers_;
  const LabelsOf labels_;
  std::vector<MetricFamily> families_;
};

double UsedShare(const WorkerStatus& w) {
  return w.total_blocks == 0 ? 0 : 1.0 - static_cast<double>(w.free_blocks) / w.total_blocks;
}

void AddLabelled(std::vector<MetricFamily>& families, const char* name, const char* help,
                 const std::vector<Labels>& labels, const std::vector<double>& values) {
  MetricFamily family{name, help, MetricType::Gauge, {}};
  for (size_t i = 0; i < labels.size(); ++i) {
    family.metric.push_back(Sample(MetricType::Gauge, labels[i], values[i]));
  }
  families.push_back(std::move(family));
}

}  // namespace

std::vector<MetricFamily> PenstockWorkerFamilies(const std::vector<WorkerStatus>& workers) {
  FamilyMaker make(workers, [](size_t, const WorkerStatus& w) {
    return Labels{{"worker", w.address}};
  });
  make.Gauge("penstock_worker_ready", "Whether the worker takes requests (1) or not (0).",
             [](const auto& w) { return w.ready ? 1 : 0; });
  make.Gauge("penstock_worker_in_flight", "Requests of this router that the worker has.",
             [](const auto& w) { return w.in_flight; });
  make.Gauge("penstock_worker_running", "Requests that the worker's engine runs.",
             [](const auto& w) { return w.running; });
  make.Gauge("penstock_worker_waiting", "Requests that wait in the worker's engine.",
             [](const auto& w) { return w.waiting; });
  make.Gauge("penstock_worker_waiting_tokens", "Prompt tokens that wait in the worker's engine.",
             [](const auto& w) { return static_cast<double>(w.waiting_tokens); });
  make.Gauge("penstock_worker_kv_blocks", "KV cache blocks that the worker has.",
             [](const auto& w) { return w.total_blocks; });
  make.Gauge("penstock_worker_kv_blocks_free", "KV cache blocks that no request holds.",
             [](const auto& w) { return w.free_blocks; });
  make.Gauge("penstock_worker_kv_blocks_cached", "KV cache blocks kept for their prefixes.",
             [](const auto& w) { return w.cached_blocks; });
  make.Gauge("penstock_worker_engine_age_seconds", "Time since the engine thread's last turn.",
             [](const auto& w) { return static_cast<double>(w.engine_age_ms) * 1e-3; });
  make.Counter("penstock_worker_steps_total", "Engine steps done.",
               [](const auto& w) { return static_cast<double>(w.steps); });
  make.Counter("penstock_worker_sessions_total", "Sessions opened to the worker.",
               [](const auto& w) { return static_cast<double>(w.connects); });
  make.Counter("penstock_worker_session_breaks_total", "Sessions lost after they were open.",
               [](const auto& w) { return static_cast<double>(w.breaks); });
  make.Counter("penstock_worker_nonfinite_requests_total",
               "Requests ended because of logits that are no numbers.",
               [](const auto& w) { return static_cast<double>(w.nonfinite_requests); });
  return std::move(make.families());
}

std::vector<MetricFamily> VllmWorkerFamilies(const std::vector<WorkerStatus>& workers,
                                             const std::string& model_name, int32_t block_size) {
  const auto labels = [&](size_t i) {
    return Labels{{"model_name", model_name}, {"engine", absl::StrFormat("%d", i)}};
  };
  FamilyMaker make(workers, [&](size_t i, const WorkerStatus&) { return labels(i); });
  make.Gauge("vllm:num_requests_running", "Number of requests in model execution batches.",
             [](const auto& w) { return w.running; });
  make.Gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.",
             [](const auto& w) { return w.waiting; });
  make.Gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", UsedShare);
  make.Counter("vllm:prefix_cache_queries_total", "Prefix cache queries, in tokens.",
               [](const auto& w) { return static_cast<double>(w.prefix_queries); });
  make.Counter("vllm:prefix_cache_hits_total", "Prefix cache hits, in tokens.",
               [](const auto& w) { return static_cast<double>(w.prefix_hits); });
  make.Counter("vllm:num_preemptions_total", "Number of preemptions by the engine.",
               [](const auto& w) { return static_cast<double>(w.preemptions); });
  make.Counter("vllm:prompt_tokens_total", "Number of prefill tokens processed.",
               [](const auto& w) { return static_cast<double>(w.prompt_tokens); });
  make.Counter("vllm:generation_tokens_total", "Number of generation tokens processed.",
               [](const auto& w) { return static_cast<double>(w.generation_tokens); });

  std::vector<Labels> reasons, states, configs;
  std::vector<double> waiting, sleeping, ones;
  for (size_t i = 0; i < workers.size(); ++i) {
    for (const char* reason : {"capacity", "deferred"}) {
      reasons.push_back(labels(i));
      reasons.back().push_back({"reason", reason});
      waiting.push_back(reason[0] == 'c' ? workers[i].waiting : 0);
    }
    for (const char* state : {"awake", "weights_offloaded", "discard_all"}) {
      states.push_back(labels(i));
      states.back().push_back({"sleep_state", state});
      sleeping.push_back(state[0] == 'a' ? 1 : 0);
    }
    configs.push_back(labels(i));
    configs.back().push_back({"block_size", absl::StrFormat("%d", block_size)});
    configs.back().push_back({"num_gpu_blocks", absl::StrFormat("%d", workers[i].total_blocks)});
    ones.push_back(1);
  }
  AddLabelled(make.families(), "vllm:num_requests_waiting_by_reason",
              "Number of waiting requests by the reason for waiting.", reasons, waiting);
  AddLabelled(make.families(), "vllm:engine_sleep_state", "Engine sleep state; always awake here.",
              states, sleeping);
  AddLabelled(make.families(), "vllm:cache_config_info", "Information about the cache.", configs,
              ones);
  return std::move(make.families());
}

}  // namespace penstock
