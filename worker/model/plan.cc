#include "worker/model/plan.h"

#include <algorithm>

#include "common/base/status.h"
#include "worker/model/memory_report.h"
#include "worker/model/rope.h"
#include "worker/model/tensor_list.h"

namespace penstock {
namespace {

struct KnownGpu {
  const char* short_name;
  const char* name;
  int64_t mib;  // total memory that the driver reports
};

constexpr KnownGpu kGpus[] = {
    {"l4", "NVIDIA L4", 23034},
    {"a10", "NVIDIA A10", 23028},
    {"rtx3090", "NVIDIA GeForce RTX 3090", 24576},
    {"rtx4090", "NVIDIA GeForce RTX 4090", 24564},
    {"rtx5090", "NVIDIA GeForce RTX 5090", 32607},
    {"rtx4000ada", "NVIDIA RTX 4000 Ada", 20475},
    {"rtx6000ada", "NVIDIA RTX 6000 Ada", 49140},
    {"l40s", "NVIDIA L40S", 46068},
    {"a100-40", "NVIDIA A100 40GB", 40960},
    {"a100", "NVIDIA A100 80GB", 81920},
    {"h100", "NVIDIA H100 80GB", 81559},
    {"h200", "NVIDIA H200", 143771},
    {"b200", "NVIDIA B200", 183359},
};

// CUDA context, kernels and libraries, communication buffers.
constexpr int64_t kContextBytes = 600'000'000;
// Captured graphs of the decode and mixed-step buckets.
constexpr int64_t kGraphBytes = 400'000'000;
constexpr int64_t kMaxSampledRows = 256;

int64_t Elements(const NamedShape& tensor) {
  int64_t elements = 1;
  for (const int64_t size : tensor.shape) elements *= size;
  return elements;
}

int64_t WeightBytes(const ModelSpec& spec, int bits) {
  int64_t bytes = 0;
  for (const NamedShape& tensor : RequiredTensors(spec)) {
    const bool layer_matrix = tensor.name.starts_with("model.layers.") && tensor.shape.size() == 2;
    bytes += Elements(tensor) * (layer_matrix ? bits : 16) / 8;
    // One f32 scale for each output row.
    if (layer_matrix && bits == 8) bytes += tensor.shape[0] * 4;
  }
  return bytes;
}

// On one card of so many.
int64_t RuntimeBytes(const ModelSpec& spec, const PlanOptions& options, int cards) {
  const int64_t width = int64_t{2} * spec.hidden_size +
                        (int64_t{2} * spec.intermediate_size +
                         int64_t{spec.num_heads + 2 * spec.num_kv_heads} * spec.head_dim) /
                            cards;
  const int64_t activations = options.tokens_per_step * width * 2;
  const int64_t logits = kMaxSampledRows * spec.vocab_size * 4 / cards;
  return kContextBytes + kGraphBytes + activations + logits;
}

PlanRow MakeRow(const ModelSpec& spec, const PlanOptions& options, int cards, int bits) {
  PlanRow row{.cards = cards, .weight_bits = bits, .weight_bytes = WeightBytes(spec, bits)};
  row.runtime_bytes = RuntimeBytes(spec, options, cards) * cards;
  // Fewer KV heads than cards are held several times.
  const int copies = std::max(1, cards / spec.num_kv_heads);
  row.kv_token_bytes = KvBytesPerToken(spec, 2) * copies;
  const auto usable =
      static_cast<int64_t>(static_cast<double>(options.gpu.bytes) * options.utilization);
  row.cache_bytes = usable * cards - row.weight_bytes - row.runtime_bytes;
  const int64_t longest = RopeMaxPosition(spec.rope, spec.max_position);
  for (const int64_t length : options.lengths) {
    if (length > longest && !row.requests.empty()) break;
    const int64_t one = KvBytesPerSequence(spec, length, 2, options.block_size) * copies;
    row.requests.push_back(std::max(0.0, static_cast<double>(row.cache_bytes)) /
                           static_cast<double>(one));
  }
  row.fits = !row.requests.empty() && row.requests[0] >= 1.0;
  return row;
}

std::string Gigabytes(int64_t bytes) {
  return absl::StrFormat("%.1f", static_cast<double>(bytes) / 1e9);
}

std::string LengthText(int64_t length) {
  return length % 1024 == 0 ? absl::StrFormat("%dk", length / 1024) : absl::StrFormat("%d", length);
}

std::string RowText(const PlanRow& row) {
  std::string text = absl::StrFormat("%5d  %2d bit  %8s  %8s  %8s", row.cards, row.weight_bits,
                                     Gigabytes(row.weight_bytes), Gigabytes(row.runtime_bytes),
                                     Gigabytes(row.cache_bytes));
  if (row.cache_bytes <= 0) {
    return text + absl::StrFormat("  does not fit: %s GB short\n", Gigabytes(-row.cache_bytes));
  }
  text += absl::StrFormat("  %10s ", Grouped(row.cache_bytes / row.kv_token_bytes));
  for (const double requests : row.requests) text += absl::StrFormat(" %7.1f", requests);
  return text + (row.fits ? "\n" : "  too little for one request\n");
}

}  // namespace

absl::StatusOr<GpuMemory> FindGpu(std::string_view short_name) {
  std::string names;
  for (const KnownGpu& gpu : kGpus) {
    if (short_name == gpu.short_name) return GpuMemory{gpu.name, gpu.mib << 20};
    names += absl::StrFormat("%s%s", names.empty() ? "" : ", ", gpu.short_name);
  }
  return NotFound("--gpu '%s' is not known (known: %s); --memory-gb N works for any card",
                  short_name, names);
}

std::vector<PlanRow> MakePlan(const ModelSpec& spec, const PlanOptions& options) {
  std::vector<PlanRow> rows;
  for (const int cards : options.cards) {
    if (!CheckTensorParallel(spec, cards).ok()) continue;
    for (const int bits : {16, 8}) rows.push_back(MakeRow(spec, options, cards, bits));
  }
  return rows;
}

std::string PlanText(const ModelSpec& spec, const PlanOptions& options,
                     const std::vector<PlanRow>& rows) {
  const int64_t parameters = CountParameters(spec);
  std::string text = absl::StrFormat(
      "%s, %.2f billion parameters, up to %s tokens\n%s, %s GB, %.0f%% of it used; KV %s bytes a "
      "token\n\n"
      "cards  weights   weights   runtime     cache   KV tokens  requests at once of\n"
      "                      GB        GB        GB            ",
      spec.architecture, static_cast<double>(parameters) / 1e9,
      Grouped(RopeMaxPosition(spec.rope, spec.max_position)), options.gpu.name,
      Gigabytes(options.gpu.bytes), options.utilization * 100, Grouped(KvBytesPerToken(spec, 2)));
  const size_t columns = rows.empty() ? 0 : rows[0].requests.size();
  for (size_t i = 0; i < columns; ++i) {
    text += absl::StrFormat(" %7s", LengthText(options.lengths[i]));
  }
  text += "\n";
  bool any = false;
  for (const PlanRow& row : rows) {
    text += RowText(row);
    any = any || row.fits;
  }
  if (!any) {
    text +=
        "\nNothing here fits: take a larger card or more of them (--tensor-parallel-size), a "
        "quantised model, or a shorter --max-model-len.\n";
  }
  return text;
}

}  // namespace penstock
