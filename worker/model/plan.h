#pragma once

// Whether a model fits a card, and how much it then serves: arithmetic on the spec alone, nothing
// is loaded. GB are 10^9 bytes.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/model/model_spec.h"

namespace penstock {

struct GpuMemory {
  std::string name;   // "NVIDIA L40S"
  int64_t bytes = 0;  // as the driver reports it
};
// By short name ("l40s", "h200"); NotFound lists the names.
absl::StatusOr<GpuMemory> FindGpu(std::string_view short_name);

struct PlanOptions {
  GpuMemory gpu;
  double utilization = 0.9;  // share of the card that is taken (--gpu-memory-utilization)
  std::vector<int> cards = {1, 2, 4, 8};
  std::vector<int64_t> lengths = {2048, 8192, 32768, 131072};  // tokens of a request
  int32_t tokens_per_step = 8192;
  int block_size = 16;
};

struct PlanRow {
  int cards = 1;
  int weight_bits = 16;        // of the layers' matrices; embeddings and norms stay at 16
  int64_t weight_bytes = 0;    // over all cards
  int64_t runtime_bytes = 0;   // over all cards: context, libraries, graphs, activations, logits
  int64_t kv_token_bytes = 0;  // over all cards
  int64_t cache_bytes = 0;     // left for KV; negative when the model does not fit
  // Requests at once for each of the options' lengths up to the model's; fewer entries beyond.
  std::vector<double> requests;
  bool fits = false;  // one request of the shortest length at least
};

// 16-bit and 8-bit weights for each number of cards that divides the model.
std::vector<PlanRow> MakePlan(const ModelSpec& spec, const PlanOptions& options);

// The table that "penstock plan" prints, with a closing sentence on what would fit where nothing
// does.
std::string PlanText(const ModelSpec& spec, const PlanOptions& options,
                     const std::vector<PlanRow>& rows);

}  // namespace penstock
