#pragma once

// Where a model's tensors come from, under one set of names: HF's ("model.layers.0.self_attn.
// q_proj.weight", "model.embed_tokens.weight", "lm_head.weight"), whatever the container. A GGUF
// source maps its names (blk.0.attn_q.weight) and undoes llama.cpp's row permutation of q and k.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/formats/tensor.h"

namespace penstock {

// A weight matrix or vector. Rows are outermost: shape {rows, cols} or {size}.
struct WeightView {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  // In the source's memory, valid as long as the source: shape[0] rows of RowBytes(dtype, shape[1])
  // each (a vector's rows are its elements).
  std::span<const std::byte> data;
  // When not empty: row i of the weight is row row_order[i] of data (undone q/k permutation, of
  // weights and biases).
  std::vector<int32_t> row_order;
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // NotFound names the tensor and the file. Thread-safe.
  virtual absl::StatusOr<WeightView> Get(std::string_view hf_name) const = 0;
  virtual bool Has(std::string_view hf_name) const = 0;
  virtual int64_t total_bytes() const = 0;

  // Every tensor, under HF's name where it has one; sorted.
  virtual std::vector<std::string> Names() const { return {}; }
  // The file that a tensor is in, and its name there where that differs, for messages.
  virtual std::string Location(std::string_view hf_name) const { return std::string(hf_name); }
};

}  // namespace penstock
