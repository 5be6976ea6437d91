#include "common/base/flag_help.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/status.h"

namespace penstock {
namespace {

struct VllmFlag {
  std::string_view name;
  std::string_view answer;
};

// vLLM's flags that Penstock does not have, with what to do instead.
constexpr VllmFlag kVllmFlags[] = {
    {"--tensor-parallel-size", "tensor parallel groups are not supported yet; use --replicas"},
    {"-tp", "tensor parallel groups are not supported yet; use --replicas"},
    {"--pipeline-parallel-size", "pipeline parallelism is not supported"},
    {"-pp", "pipeline parallelism is not supported"},
    {"--data-parallel-size", "use --replicas: each replica is a worker of its own"},
    {"-dp", "use --replicas: each replica is a worker of its own"},
    {"--quantization", "the format is read from the model file; leave the flag out"},
    {"-q", "the format is read from the model file; leave the flag out"},
    {"--kv-cache-dtype", "the KV cache has the backend's own type; leave the flag out"},
    {"--enforce-eager", "there is no compile step to switch off; leave the flag out"},
    {"--compilation-config", "there is no compile step; leave the flag out"},
    {"--optimization-level", "there is no compile step; leave the flag out"},
    {"-O", "there is no compile step; leave the flag out"},
    {"--cudagraph-capture-sizes", "graphs are captured for the sizes in use; leave the flag out"},
    {"--enable-chunked-prefill", "long prompts are always prefilled in chunks; leave the flag out"},
    {"--no-enable-chunked-prefill",
     "long prompts are always prefilled in chunks; leave the flag out"},
    {"--trust-remote-code", "no code of a model is ever run; leave the flag out"},
    {"--tokenizer", "the tokenizer comes with the model; leave the flag out"},
    {"--tokenizer-mode", "the tokenizer's kind is read from its files; leave the flag out"},
    {"--swap-space", "preempted requests are recomputed, never swapped; leave the flag out"},
    {"--cpu-offload-gb", "weights are not offloaded; choose a smaller model or quantisation"},
    {"--enable-lora", "LoRA adapters are not supported yet"},
    {"--lora-modules", "LoRA adapters are not supported yet"},
    {"--speculative-config", "speculative decoding is not supported yet"},
    {"-sc", "speculative decoding is not supported yet"},
    {"--enable-auto-tool-choice", "tool calls are not supported yet"},
    {"--tool-call-parser", "tool calls are not supported yet"},
    {"--reasoning-parser", "reasoning parsers are not supported yet"},
    {"--structured-outputs-config", "structured output is not supported yet"},
    {"--guided-decoding-backend", "structured output is not supported yet"},
    {"--disable-log-requests", "requests are logged one line each without prompts; leave it out"},
    {"--enable-log-requests", "requests are logged one line each without prompts; leave it out"},
    {"--disable-log-stats", "statistics are on /metrics; leave the flag out"},
    {"--uvicorn-log-level", "use --log-level"},
    {"--download-dir", "set HF_HOME or HF_HUB_CACHE"},
    {"--hf-token", "set HF_TOKEN"},
    {"--distributed-executor-backend", "workers are processes of their own; leave the flag out"},
    {"--disable-custom-all-reduce", "there is nothing to switch off; leave the flag out"},
    {"--ssl-keyfile", "TLS is not served; put a proxy in front (deploy/nginx)"},
    {"--ssl-certfile", "TLS is not served; put a proxy in front (deploy/nginx)"},
    {"--ssl-ca-certs", "TLS is not served; put a proxy in front (deploy/nginx)"},
    {"--middleware", "put a proxy in front instead (deploy/nginx)"},
    {"--runner", "only text generation is served; leave the flag out"},
    {"--task", "only text generation is served; leave the flag out"},
    {"--limit-mm-per-prompt", "images and audio are not supported"},
    {"--otlp-traces-endpoint", "traces are not supported yet"},
    {"--headless", "start penstock-worker on the other machine and name it with --worker"},
    {"--grpc", "workers always speak gRPC: see --listen of penstock-worker"},
    {"--scheduling-policy", "priorities are always honoured; leave the flag out"},
    {"--async-scheduling", "steps are always planned one ahead; leave the flag out"},
};

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row[b.size()];
}

}  // namespace

absl::Status UnknownFlagError(std::string_view flag, std::span<const FlagInfo> known) {
  const std::string name(flag.substr(0, flag.find('=')));
  for (const VllmFlag& vllm : kVllmFlags) {
    if (vllm.name == name) return InvalidArgument("%s: %s", name, vllm.answer);
  }
  std::string_view nearest;
  size_t best = name.size() / 2 + 1;
  for (const FlagInfo& info : known) {
    const size_t distance = EditDistance(name, info.name);
    if (distance < best) {
      best = distance;
      nearest = info.name;
    }
  }
  if (nearest.empty()) return InvalidArgument("%s: no such flag; see --help", name);
  return InvalidArgument("%s: no such flag; did you mean %s?", name, nearest);
}

}  // namespace penstock
