#include "worker/model/cuda_weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "common/formats/dequantize.h"

namespace penstock {
namespace {

constexpr int64_t kAlignment = 128;                   // elements
constexpr int64_t kStagingElements = 32 << 20;        // of one of two buffers
constexpr int64_t kPieceElements = int64_t{1} << 18;  // that one thread converts at a time

// Where a tensor of the file goes.
struct Placement {
  std::string name;
  int64_t offset = 0;  // elements
  int64_t rows = 0;
  int64_t columns = 0;  // 0: a vector of `rows` elements
  int64_t elements() const { return rows * std::max<int64_t>(columns, 1); }
};

// Lays the model out: with base null it only counts.
class Planner {
 public:
  Planner(const ModelSpec& spec, const __nv_bfloat16* base) : spec_(spec), base_(base) {}

  CudaWeights Plan() {
    CudaWeights weights;
    const int64_t hidden = spec_.hidden_size;
    weights.embedding = Matrix({{"model.embed_tokens", spec_.vocab_size}}, hidden, /*bias=*/false);
    for (int32_t i = 0; i < spec_.num_layers; ++i) weights.layers.push_back(Layer(i));
    weights.final_norm = Vector("model.norm.weight", hidden);
    if (!spec_.tie_word_embeddings) {
      weights.untied_head = Matrix({{"lm_head", spec_.vocab_size}}, hidden, /*bias=*/false);
    }
    return weights;
  }
  int64_t elements() const { return elements_; }
  const std::vector<Placement>& placements() const { return placements_; }

 private:
  struct Part {
    std::string name;
    int64_t rows = 0;
  };

  int64_t Take(int64_t elements) {
    const int64_t at = elements_;
    elements_ += (elements + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  }
  const __nv_bfloat16* Vector(const std::string& name, int64_t size) {
    placements_.push_back({name, Take(size), size, 0});
    return base_ + placements_.back().offset;
  }
  // The parts' rows one behind the other, the biases likewise.
  CudaMatrix Matrix(const std::vector<Part>& parts, int64_t columns, bool bias) {
    int64_t rows = 0;
    for (const Part& part : parts) rows += part.rows;
    CudaMatrix matrix = {.num_outputs = static_cast<int32_t>(rows),
                         .num_inputs = static_cast<int32_t>(columns)};
    int64_t at = Take(rows * columns);
    matrix.weight = base_ + at;
    for (const Part& part : parts) {
      placements_.push_back({part.name + ".weight", at, part.rows, columns});
      at += part.rows * columns;
    }
    if (!bias) return matrix;
    at = Take(rows);
    matrix.bias = base_ + at;
    for (const Part& part : parts) {
      placements_.push_back({part.name + ".bias", at, part.rows, 0});
      at += part.rows;
    }
    return matrix;
  }

  CudaLayer Layer(int32_t index) {
    const std::string base = absl::StrFormat("model.layers.%d.", index);
    const std::string attn = base + "self_attn.";
    const std::string mlp = base + "mlp.";
    const int64_t hidden = spec_.hidden_size;
    const int64_t heads = int64_t{spec_.num_heads} * spec_.head_dim;
    const int64_t kv_heads = int64_t{spec_.num_kv_heads} * spec_.head_dim;
    const int64_t inner = spec_.intermediate_size;
    CudaLayer layer;
    layer.input_norm = Vector(base + "input_layernorm.weight", hidden);
    layer.mlp_norm = Vector(base + "post_attention_layernorm.weight", hidden);
    if (spec_.qk_norm) {
      layer.q_norm = Vector(attn + "q_norm.weight", spec_.head_dim);
      layer.k_norm = Vector(attn + "k_norm.weight", spec_.head_dim);
    }
    layer.qkv =
        Matrix({{attn + "q_proj", heads}, {attn + "k_proj", kv_heads}, {attn + "v_proj", kv_heads}},
               hidden, spec_.qkv_bias);
    layer.o = Matrix({{attn + "o_proj", hidden}}, heads, spec_.o_bias);
    layer.gate =
        Matrix({{mlp + "gate_proj", inner}, {mlp + "up_proj", inner}}, hidden, spec_.mlp_bias);
    layer.gate.num_outputs = spec_.intermediate_size;
    layer.up = layer.gate;
    layer.up.weight += inner * hidden;
    if (layer.up.bias != nullptr) layer.up.bias += inner;
    layer.down = Matrix({{mlp + "down_proj", hidden}}, inner, spec_.mlp_bias);
    return layer;
  }

  const ModelSpec& spec_;
  const __nv_bfloat16* base_;
  int64_t elements_ = 0;
  std::vector<Placement> placements_;
};

uint16_t ToBf16(float value) {  // to nearest, ties to even; NaN stays NaN
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

void ConvertRow(DType dtype, std::span<const std::byte> data, std::vector<float>* scratch,
                std::span<uint16_t> out) {
  if (dtype == DType::kBF16) {
    std::memcpy(out.data(), data.data(), data.size());
    return;
  }
  scratch->resize(out.size());
  Dequantize(dtype, data, *scratch);
  for (size_t i = 0; i < out.size(); ++i) out[i] = ToBf16((*scratch)[i]);
}

// Sends converted rows to the GPU through two page-locked buffers in turn.
class Uploader {
 public:
  Uploader(const WeightSource& source, kernels::ThreadPool& pool, cudaStream_t stream,
           __nv_bfloat16* base)
      : source_(source), pool_(pool), stream_(stream), base_(base) {}
  ~Uploader() {
    for (const cudaEvent_t event : events_) {
      if (event != nullptr) cudaEventDestroy(event);
    }
  }

  absl::Status Init(int64_t largest) {
    const int64_t elements = std::min(kStagingElements, largest);
    for (size_t i = 0; i < staging_.size(); ++i) {
      ASSIGN_OR_RETURN(staging_[i], AllocatePinned<uint16_t>(static_cast<size_t>(elements),
                                                             "buffers for loading weights"));
      RETURN_IF_ERROR(CudaStatus(cudaEventCreateWithFlags(&events_[i], cudaEventDisableTiming),
                                 "creating an event"));
    }
    return absl::OkStatus();
  }

  absl::Status Send(const Placement& place) {
    ASSIGN_OR_RETURN(const WeightView view, source_.Get(place.name));
    return place.columns == 0 ? SendVector(place, view) : SendMatrix(place, view);
  }

 private:
  absl::Status SendVector(const Placement& place, const WeightView& view) {
    std::vector<float> values(static_cast<size_t>(place.rows));
    Dequantize(view.dtype, view.data, values);
    ASSIGN_OR_RETURN(uint16_t* const out, NextBuffer());
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t from = view.row_order.empty() ? i : static_cast<size_t>(view.row_order[i]);
      out[i] = ToBf16(values[from]);
    }
    return Copy(place.offset, place.rows);
  }

  absl::Status SendMatrix(const Placement& place, const WeightView& view) {
    const std::optional<int64_t> row_bytes = RowBytes(view.dtype, place.columns);
    if (!row_bytes.has_value()) {
      return InvalidArgument("tensor '%s': %d columns are no whole number of %s blocks", place.name,
                             place.columns, std::string(DTypeName(view.dtype)));
    }
    const int64_t rows_at_once =
        std::max<int64_t>(1, static_cast<int64_t>(staging_[0].size()) / place.columns);
    const int64_t piece = std::max<int64_t>(1, kPieceElements / place.columns);
    for (int64_t first = 0; first < place.rows; first += rows_at_once) {
      const int64_t count = std::min(rows_at_once, place.rows - first);
      ASSIGN_OR_RETURN(uint16_t* const out, NextBuffer());
      pool_.Run(count, piece, [&](int64_t from, int64_t to, int) {
        std::vector<float> scratch;
        for (int64_t row = from; row < to; ++row) {
          const int64_t stored = view.row_order.empty()
                                     ? first + row
                                     : view.row_order[static_cast<size_t>(first + row)];
          const auto data = view.data.subspan(static_cast<size_t>(stored * *row_bytes),
                                              static_cast<size_t>(*row_bytes));
          ConvertRow(view.dtype, data, &scratch,
                     {out + row * place.columns, static_cast<size_t>(place.columns)});
        }
      });
      RETURN_IF_ERROR(Copy(place.offset + first * place.columns, count * place.columns));
    }
    return absl::OkStatus();
  }

  // The buffer whose last copy is over.
  absl::StatusOr<uint16_t*> NextBuffer() {
    turn_ ^= 1;
    RETURN_IF_ERROR(CudaStatus(cudaEventSynchronize(events_[turn_]), "copying weights"));
    return staging_[turn_].data();
  }
  absl::Status Copy(int64_t offset, int64_t elements) {
    RETURN_IF_ERROR(CudaStatus(
        cudaMemcpyAsync(base_ + offset, staging_[turn_].data(), static_cast<size_t>(elements) * 2,
                        cudaMemcpyHostToDevice, stream_),
        "copying weights"));
    return CudaStatus(cudaEventRecord(events_[turn_], stream_), "copying weights");
  }

  const WeightSource& source_;
  kernels::ThreadPool& pool_;
  const cudaStream_t stream_;
  __nv_bfloat16* const base_;
  std::array<PinnedArray<uint16_t>, 2> staging_;
  std::array<cudaEvent_t, 2> events_ = {};
  size_t turn_ = 0;
};

}  // namespace

int64_t CudaWeightBytes(const ModelSpec& spec) {
  Planner planner(spec, nullptr);
  (void)planner.Plan();
  return planner.elements() * 2;
}

absl::StatusOr<CudaWeights> LoadCudaWeights(const ModelSpec& spec, const WeightSource& source,
                                            kernels::ThreadPool& pool, cudaStream_t stream,
                                            const std::function<void(int64_t, int64_t)>& progress) {
  const int64_t bytes = CudaWeightBytes(spec);
  ASSIGN_OR_RETURN(auto storage,
                   AllocateDevice<__nv_bfloat16>(static_cast<size_t>(bytes / 2), "weights"));
  Planner planner(spec, storage.data());
  CudaWeights weights = planner.Plan();
  int64_t largest = 0;  // what must fit a buffer whole: one row, or a vector
  for (const Placement& place : planner.placements()) {
    largest = std::max(largest, place.elements());
  }
  Uploader uploader(source, pool, stream, storage.data());
  RETURN_IF_ERROR(uploader.Init(largest));
  int64_t done = 0;
  for (const Placement& place : planner.placements()) {
    RETURN_IF_ERROR(uploader.Send(place));
    done += place.elements() * 2;
    if (progress) progress(done, bytes);
  }
  RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream), "copying weights"));
  weights.storage = std::move(storage);
  return weights;
}

}  // namespace penstock
