#pragma once

// A model's own description -> ModelSpec: config.json of transformers, or GGUF metadata. What the
// engine cannot compute is refused here by name, never ignored.

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/formats/gguf.h"
#include "worker/model/model_spec.h"

namespace penstock {

// Architectures: LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM.
// InvalidArgument for wrong or missing numbers, Unimplemented for an architecture, RoPE type,
// quantisation or activation that is not supported; each names `name`, the field and its value.
// Absent fields mean what transformers takes them to mean.
absl::StatusOr<ModelSpec> SpecFromConfigJson(std::string_view text, std::string_view name);
absl::StatusOr<ModelSpec> SpecFromConfigFile(const std::string& path);

// general.architecture llama (also Mistral and SmolLM), qwen2, qwen3.
absl::StatusOr<ModelSpec> SpecFromGguf(const GgufFile& gguf);

}  // namespace penstock
