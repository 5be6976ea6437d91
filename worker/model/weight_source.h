#pragma once

// Weight sources over model files and over nothing (random), and the check that a source fits a
// spec. Sources are immutable: any thread may read. Weights are read in place from the mapping.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/formats/gguf.h"
#include "common/formats/safetensors.h"
#include "worker/model/model_spec.h"
#include "worker/model/weights.h"

namespace penstock {

enum class LoadFormat { kAuto, kSafetensors, kGguf, kDummy };
// "auto", "safetensors", "gguf", "dummy"; InvalidArgument names the flag and what is possible.
absl::StatusOr<LoadFormat> ParseLoadFormat(std::string_view text);

std::unique_ptr<WeightSource> MakeSafetensorsSource(std::unique_ptr<SafetensorsModel> model);
// spec was made from this file: its heads tell how llama.cpp permuted q and k.
std::unique_ptr<WeightSource> MakeGgufSource(std::unique_ptr<GgufFile> gguf, const ModelSpec& spec);
// Random weights of standard deviation 0.02 in spec.weights_dtype (f32, f16 or bf16; anything else
// gives bf16), norms of ones. A function of seed, spec and tensor alone. All tensors share one pool
// of at most 64 MB of memory: in larger models values repeat.
absl::StatusOr<std::unique_ptr<WeightSource>> MakeDummySource(const ModelSpec& spec, uint64_t seed);

struct ModelFiles {
  ModelSpec spec;
  std::unique_ptr<WeightSource> weights;
  std::string format;  // "GGUF Q4_1", "safetensors bfloat16", "dummy bfloat16"
};

// path: a GGUF file, or a folder with config.json and safetensors, or a folder with one GGUF. For
// kDummy also a config.json. CheckWeights has passed. Nothing of the weights was read or copied.
absl::StatusOr<ModelFiles> OpenModelFiles(const std::string& path, LoadFormat format,
                                          uint64_t dummy_seed = 0);
// The spec alone, for what needs no weights (plan, bench): a config.json, a folder or a GGUF.
absl::StatusOr<ModelSpec> OpenModelSpec(const std::string& path);

// Every tensor that the spec needs is there with the right shape and a type that can be computed
// with, and none that the forward pass would leave out. Errors name file, tensor, expected and
// actual.
absl::Status CheckWeights(const ModelSpec& spec, const WeightSource& source);

}  // namespace penstock
