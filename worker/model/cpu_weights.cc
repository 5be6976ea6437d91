#include "worker/model/cpu_weights.h"

#include <string>

#include "common/base/status.h"
#include "common/formats/dequantize.h"

namespace penstock {
namespace {

using kernels::kPanel;
using kernels::PackedMatrix;
using kernels::WeightFormat;

WeightFormat FormatOf(DType type) {
  switch (type) {
    case DType::kF32:
      return WeightFormat::kF32;
    case DType::kF16:
      return WeightFormat::kF16;
    case DType::kBF16:
      return WeightFormat::kBF16;
    case DType::kQ4_0:
      return WeightFormat::kQ4_0;
    case DType::kQ4_1:
      return WeightFormat::kQ4_1;
    case DType::kQ5_0:
      return WeightFormat::kQ5_0;
    case DType::kQ5_1:
      return WeightFormat::kQ5_1;
    case DType::kQ8_0:
      return WeightFormat::kQ8_0;
    case DType::kQ4_K:
      return WeightFormat::kQ4_K;
    case DType::kQ5_K:
      return WeightFormat::kQ5_K;
    case DType::kQ6_K:
      return WeightFormat::kQ6_K;
  }
  return WeightFormat::kF32;
}

class Loader {
 public:
  Loader(const WeightSource& source, kernels::ThreadPool& pool, const LoadProgress& progress)
      : source_(source), pool_(pool), progress_(progress) {}

  absl::StatusOr<WeightView> Get(const std::string& name, std::vector<int64_t> shape) {
    ASSIGN_OR_RETURN(WeightView view, source_.Get(name));
    if (view.shape != shape) {
      return InvalidArgument("tensor '%s' has shape %s, expected %s", name, ShapeText(view.shape),
                             ShapeText(shape));
    }
    return view;
  }

  absl::StatusOr<std::vector<float>> Vector(const std::string& name, int64_t size) {
    ASSIGN_OR_RETURN(const WeightView view, Get(name, {size}));
    std::vector<float> values(static_cast<size_t>(size));
    Dequantize(view.dtype, view.data, values);
    return values;
  }

  absl::StatusOr<PackedMatrix> Matrix(const std::string& name, int64_t rows, int64_t columns) {
    ASSIGN_OR_RETURN(const WeightView view, Get(name, {rows, columns}));
    const std::optional<int64_t> row_bytes = RowBytes(view.dtype, columns);
    if (!row_bytes.has_value()) {
      return InvalidArgument("tensor '%s': %d columns are no whole number of %s blocks", name,
                             columns, std::string(DTypeName(view.dtype)));
    }
    PackedMatrix matrix = kernels::AllocateMatrix(FormatOf(view.dtype), rows, columns);
    pool_.Run(matrix.num_panels(), 4, [&](int64_t first, int64_t last, int) {
      for (int64_t panel = first; panel < last; ++panel) {
        const std::byte* row_data[kPanel] = {};
        for (int64_t i = 0; i < kPanel && panel * kPanel + i < rows; ++i) {
          const int64_t row = panel * kPanel + i;
          const int64_t stored =
              view.row_order.empty() ? row : view.row_order[static_cast<size_t>(row)];
          row_data[i] = view.data.data() + stored * *row_bytes;
        }
        kernels::PackPanel(matrix, panel, row_data);
      }
    });
    done_ += matrix.bytes();
    if (progress_) progress_(std::min(done_, source_.total_bytes()), source_.total_bytes());
    return matrix;
  }

  absl::Status Bias(const std::string& name, PackedMatrix* matrix) {
    ASSIGN_OR_RETURN(const WeightView view, Get(name, {matrix->num_outputs}));
    std::vector<float> stored(static_cast<size_t>(matrix->num_outputs));
    Dequantize(view.dtype, view.data, stored);
    matrix->bias = kernels::AllocateFloats(matrix->num_panels() * kPanel);
    for (size_t i = 0; i < stored.size(); ++i) {
      const size_t from = view.row_order.empty() ? i : static_cast<size_t>(view.row_order[i]);
      matrix->bias.get()[i] = stored[from];
    }
    return absl::OkStatus();
  }

  absl::StatusOr<PackedMatrix> LinearLayer(const std::string& name, int64_t rows, int64_t columns,
                                           bool bias) {
    ASSIGN_OR_RETURN(PackedMatrix matrix, Matrix(name + ".weight", rows, columns));
    if (bias) RETURN_IF_ERROR(Bias(name + ".bias", &matrix));
    return matrix;
  }

 private:
  const WeightSource& source_;
  kernels::ThreadPool& pool_;
  const LoadProgress& progress_;
  int64_t done_ = 0;
};

absl::StatusOr<CpuLayer> LoadLayer(const ModelSpec& spec, int32_t index, Loader& loader) {
  const std::string base = absl::StrFormat("model.layers.%d.", index);
  const int64_t hidden = spec.hidden_size;
  const int64_t heads = static_cast<int64_t>(spec.num_heads) * spec.head_dim;
  const int64_t kv_heads = static_cast<int64_t>(spec.num_kv_heads) * spec.head_dim;
  const int64_t inner = spec.intermediate_size;
  const std::string attn = base + "self_attn.";
  const std::string mlp = base + "mlp.";
  CpuLayer layer;
  ASSIGN_OR_RETURN(layer.input_norm, loader.Vector(base + "input_layernorm.weight", hidden));
  ASSIGN_OR_RETURN(layer.mlp_norm, loader.Vector(base + "post_attention_layernorm.weight", hidden));
  if (spec.qk_norm) {
    ASSIGN_OR_RETURN(layer.q_norm, loader.Vector(attn + "q_norm.weight", spec.head_dim));
    ASSIGN_OR_RETURN(layer.k_norm, loader.Vector(attn + "k_norm.weight", spec.head_dim));
  }
  ASSIGN_OR_RETURN(layer.q, loader.LinearLayer(attn + "q_proj", heads, hidden, spec.qkv_bias));
  ASSIGN_OR_RETURN(layer.k, loader.LinearLayer(attn + "k_proj", kv_heads, hidden, spec.qkv_bias));
  ASSIGN_OR_RETURN(layer.v, loader.LinearLayer(attn + "v_proj", kv_heads, hidden, spec.qkv_bias));
  ASSIGN_OR_RETURN(layer.o, loader.LinearLayer(attn + "o_proj", hidden, heads, spec.o_bias));
  ASSIGN_OR_RETURN(layer.gate, loader.LinearLayer(mlp + "gate_proj", inner, hidden, spec.mlp_bias));
  ASSIGN_OR_RETURN(layer.up, loader.LinearLayer(mlp + "up_proj", inner, hidden, spec.mlp_bias));
  ASSIGN_OR_RETURN(layer.down, loader.LinearLayer(mlp + "down_proj", hidden, inner, spec.mlp_bias));
  return layer;
}

}  // namespace

int64_t CpuWeights::bytes() const {
  int64_t total = embedding.bytes();
  if (untied_head.data != nullptr) total += untied_head.bytes();
  for (const CpuLayer& layer : layers) {
    for (const PackedMatrix* m :
         {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down}) {
      total += m->bytes();
    }
  }
  return total;
}

absl::StatusOr<CpuWeights> LoadCpuWeights(const ModelSpec& spec, const WeightSource& source,
                                          kernels::ThreadPool& pool, const LoadProgress& progress) {
  if (spec.head_dim % 16 != 0) {
    return Unimplemented("head_dim %d: the CPU kernels need a multiple of 16", spec.head_dim);
  }
  Loader loader(source, pool, progress);
  CpuWeights weights;
  ASSIGN_OR_RETURN(weights.embedding,
                   loader.Matrix("model.embed_tokens.weight", spec.vocab_size, spec.hidden_size));
  for (int32_t i = 0; i < spec.num_layers; ++i) {
    ASSIGN_OR_RETURN(CpuLayer layer, LoadLayer(spec, i, loader));
    weights.layers.push_back(std::move(layer));
  }
  ASSIGN_OR_RETURN(weights.final_norm, loader.Vector("model.norm.weight", spec.hidden_size));
  if (!spec.tie_word_embeddings) {
    ASSIGN_OR_RETURN(weights.untied_head,
                     loader.Matrix("lm_head.weight", spec.vocab_size, spec.hidden_size));
  }
  if (progress) progress(source.total_bytes(), source.total_bytes());
  return weights;
}

}  // namespace penstock
