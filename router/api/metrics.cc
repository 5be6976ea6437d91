#include "router/api/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "router/api/worker_metrics.h"

namespace penstock {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;
using Labels = std::map<std::string, std::string>;

constexpr std::array<double, TokenGaps::kBuckets - 1> kGapBounds = {
    .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80};

const Buckets& FirstTokenBuckets() {
  static const Buckets buckets = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                  1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
  return buckets;
}

const Buckets& RequestBuckets() {
  static const Buckets buckets = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                  30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
  return buckets;
}

// 1, 2, 5, 10, 20, 50, ... up to the context.
Buckets TokenBuckets(int32_t max_model_len) {
  Buckets buckets;
  for (int64_t power = 1; power <= max_model_len; power *= 10) {
    for (const int64_t mantissa : {1, 2, 5}) {
      if (mantissa * power <= max_model_len)
        buckets.push_back(static_cast<double>(mantissa * power));
    }
  }
  return buckets;
}

}  // namespace

void TokenGaps::Add(double seconds) {
  size_t bucket = 0;
  while (bucket < kGapBounds.size() && seconds > kGapBounds[bucket]) ++bucket;
  ++counts[bucket];
  ++total;
  sum_seconds += seconds;
}

struct Metrics::Own {
  explicit Own(const std::string& version) {
    prometheus::BuildGauge()
        .Name("penstock_build_info")
        .Help("The version of this router.")
        .Register(registry)
        .Add({{"version", version}})
        .Set(1);
  }
  prometheus::Registry registry;
  prometheus::Family<prometheus::Counter>& http =
      prometheus::BuildCounter()
          .Name("penstock_http_requests_total")
          .Help("HTTP requests answered, by route, method and status.")
          .Register(registry);
  prometheus::Family<prometheus::Counter>& refused =
      prometheus::BuildCounter()
          .Name("penstock_requests_refused_total")
          .Help("Generation requests refused before they began, by reason.")
          .Register(registry);
  prometheus::Counter& events = prometheus::BuildCounter()
                                    .Name("penstock_sse_events_total")
                                    .Help("Events written to streaming clients.")
                                    .Register(registry)
                                    .Add({});
  prometheus::Counter& client_gone = prometheus::BuildCounter()
                                         .Name("penstock_client_gone_total")
                                         .Help("Requests whose client left before the end.")
                                         .Register(registry)
                                         .Add({});
  prometheus::Histogram& prepare =
      prometheus::BuildHistogram()
          .Name("penstock_prepare_seconds")
          .Help("Time from a request's body to its token ids.")
          .Register(registry)
          .Add({}, Buckets{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 5});
};

// vLLM's names; engine "0", since a request's engine is the router's own business.
struct Metrics::Model {
  using Histogram = prometheus::Histogram;

  Model(const std::string& name, int32_t max_model_len, int32_t block)
      : labels{{"model_name", name}, {"engine", "0"}},
        token_buckets(TokenBuckets(max_model_len)),
        model_name(name),
        block_size(block) {
    for (const char* reason : {"stop", "length", "abort", "error", "repetition"}) {
      AddSuccess(reason);
    }
  }
  prometheus::Counter& AddSuccess(const std::string& reason) {
    Labels with_reason = labels;
    with_reason["finished_reason"] = reason;
    return success.Add(with_reason);
  }
  prometheus::Counter& AddSource(const std::string& source) {
    Labels with_source = labels;
    with_source["source"] = source;
    return by_source.Add(with_source);
  }
  Histogram& Make(const char* name, const char* help, const Buckets& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels,
                                                                                     buckets);
  }

  const Labels labels;
  const Buckets token_buckets;
  const std::string model_name;
  const int32_t block_size;
  prometheus::Registry registry;
  prometheus::Family<prometheus::Counter>& success =
      prometheus::BuildCounter()
          .Name("vllm:request_success_total")
          .Help("Count of processed requests, by how they ended.")
          .Register(registry);
  prometheus::Family<prometheus::Counter>& by_source =
      prometheus::BuildCounter()
          .Name("vllm:prompt_tokens_by_source_total")
          .Help("Prompt tokens by where their KV came from.")
          .Register(registry);
  prometheus::Counter& computed = AddSource("local_compute");
  prometheus::Counter& cache_hit = AddSource("local_cache_hit");
  prometheus::Counter& transferred = AddSource("external_kv_transfer");
  prometheus::Counter& cached = prometheus::BuildCounter()
                                    .Name("vllm:prompt_tokens_cached_total")
                                    .Help("Prompt tokens found in the prefix cache.")
                                    .Register(registry)
                                    .Add(labels);
  Histogram& prompt_tokens =
      Make("vllm:request_prompt_tokens", "Prefill tokens of a request.", token_buckets);
  Histogram& generation_tokens =
      Make("vllm:request_generation_tokens", "Generation tokens of a request.", token_buckets);
  Histogram& max_generation_tokens =
      Make("vllm:request_max_num_generation_tokens", "Longest of the generations of a request.",
           token_buckets);
  Histogram& params_max_tokens =
      Make("vllm:request_params_max_tokens", "The max_tokens of a request.", token_buckets);
  Histogram& prefill_computed =
      Make("vllm:request_prefill_kv_computed_tokens",
           "New KV tokens computed in prefill, without cached ones.", token_buckets);
  Histogram& params_n =
      Make("vllm:request_params_n", "The n of a request.", Buckets{1, 2, 5, 10, 20});
  Histogram& first_token =
      Make("vllm:time_to_first_token_seconds", "Time to first token.", FirstTokenBuckets());
  Histogram& gaps =
      Make("vllm:inter_token_latency_seconds", "Time between two tokens of a request.",
           Buckets(kGapBounds.begin(), kGapBounds.end()));
  Histogram& per_token =
      Make("vllm:request_time_per_output_token_seconds", "Mean time per output token of a request.",
           Buckets(kGapBounds.begin(), kGapBounds.end()));
  Histogram& e2e = Make("vllm:e2e_request_latency_seconds", "End to end latency of a request.",
                        RequestBuckets());
  Histogram& queue = Make("vllm:request_queue_time_seconds",
                          "Time that a request waited in the engine.", RequestBuckets());
  Histogram& inference = Make("vllm:request_inference_time_seconds",
                              "Time that a request ran in the engine.", RequestBuckets());
  Histogram& prefill =
      Make("vllm:request_prefill_time_seconds", "Prefill time of a request.", RequestBuckets());
  Histogram& decode =
      Make("vllm:request_decode_time_seconds", "Decode time of a request.", RequestBuckets());
};

Metrics::Metrics(std::string version, bool vllm_names)
    : own_(std::make_unique<Own>(version)), vllm_names_(vllm_names) {}
Metrics::~Metrics() = default;

void Metrics::SetModel(const std::string& name, const ServedModel& model) {
  if (model_ready_) return;
  model_ = std::make_unique<Model>(name, model.max_model_len, model.block_size);
  model_ready_ = true;
}

void Metrics::CountHttp(std::string_view route, std::string_view method, int status) {
  own_->http
      .Add({{"route", std::string(route)},
            {"method", std::string(method)},
            {"status", absl::StrFormat("%d", status)}})
      .Increment();
}

void Metrics::ObserveFirstToken(double seconds) {
  if (model_ready_) model_->first_token.Observe(seconds);
}

void Metrics::ObservePrepare(double seconds) { own_->prepare.Observe(seconds); }

void Metrics::AddGaps(TokenGaps* gaps) {
  if (gaps->total > 0 && model_ready_) {
    model_->gaps.ObserveMultiple(std::vector<double>(gaps->counts.begin(), gaps->counts.end()),
                                 gaps->sum_seconds);
  }
  *gaps = TokenGaps();
}

void Metrics::CountEvents(uint64_t events) { own_->events.Increment(static_cast<double>(events)); }
void Metrics::CountClientGone() { own_->client_gone.Increment(); }

void Metrics::CountRefused(std::string_view reason) {
  own_->refused.Add({{"reason", std::string(reason)}}).Increment();
}

void Metrics::ObserveRequest(int64_t n) {
  if (model_ready_) model_->params_n.Observe(static_cast<double>(n));
}

void Metrics::ObserveChoice(const ChoiceStats& s) {
  if (!model_ready_) return;
  Model& m = *model_;
  m.AddSuccess(std::string(s.reason)).Increment();
  m.prompt_tokens.Observe(static_cast<double>(s.prompt_tokens));
  m.generation_tokens.Observe(static_cast<double>(s.generated_tokens));
  m.max_generation_tokens.Observe(static_cast<double>(s.generated_tokens));
  m.params_max_tokens.Observe(static_cast<double>(s.max_tokens));
  m.e2e.Observe(s.e2e_seconds);
  if (s.generated_tokens > 1) {
    m.per_token.Observe(s.decode_seconds / static_cast<double>(s.generated_tokens - 1));
  }
  m.decode.Observe(s.decode_seconds);
  if (s.queue_seconds < 0) return;  // cut before the worker said its figures
  m.prefill_computed.Observe(static_cast<double>(s.prompt_tokens - s.cached_tokens));
  m.cached.Increment(static_cast<double>(s.cached_tokens));
  m.cache_hit.Increment(static_cast<double>(s.cached_tokens));
  m.computed.Increment(static_cast<double>(s.prompt_tokens - s.cached_tokens));
  m.queue.Observe(s.queue_seconds);
  m.prefill.Observe(s.prefill_seconds);
  m.inference.Observe(s.prefill_seconds + s.decode_seconds);
}

std::string Metrics::Render(const std::vector<WorkerStatus>& workers, const Admission& admission,
                            int64_t in_flight) const {
  std::vector<prometheus::MetricFamily> families = own_->registry.Collect();
  const auto add = [&families](std::vector<prometheus::MetricFamily> more) {
    std::move(more.begin(), more.end(), std::back_inserter(families));
  };
  const auto gauge = [&](const char* name, const char* help, int64_t value) {
    prometheus::ClientMetric metric;
    metric.gauge.value = static_cast<double>(value);
    families.push_back({name, help, prometheus::MetricType::Gauge, {metric}});
  };
  gauge("penstock_router_requests_in_flight", "Generation requests being answered.", in_flight);
  gauge("penstock_router_queued_requests", "Choices without a first token yet.",
        admission.requests());
  gauge("penstock_router_queued_prompt_tokens",
        "Prompt tokens of choices without a first token yet.", admission.tokens());
  add(PenstockWorkerFamilies(workers));
  if (vllm_names_ && model_ready_) {
    add(model_->registry.Collect());
    add(VllmWorkerFamilies(workers, model_->model_name, model_->block_size));
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace penstock
