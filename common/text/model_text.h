#pragma once

// Everything of a model that is about text, gathered from its files: tokenizer, chat templates,
// generation defaults and the ids that end an answer. The worker makes it from its folder or GGUF,
// the router from the same files as GetModel sent them.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/text/tokenizer.h"

namespace penstock {

// What generation_config.json sets; unset is neutral.
struct GenerationDefaults {
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int64_t> top_k;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<int64_t> max_new_tokens;
};

// Immutable once loaded: any thread may read.
struct ModelText {
  std::unique_ptr<const Tokenizer> tokenizer;
  // (name, Jinja source), "default" first when there is one; empty: the model has no chat format.
  // "tool_use" is for requests with tools.
  std::vector<std::pair<std::string, std::string>> chat_templates;
  GenerationDefaults defaults;
  // The union of every place that names one, ascending.
  std::vector<int32_t> eos_token_ids;

  // The template for a request: the named one, "tool_use" when there are tools and it exists, else
  // "default". Null when there is none.
  const std::string* FindTemplate(std::string_view name, bool has_tools) const;
};

// File name -> content: "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
// "added_tokens.json", "generation_config.json", "config.json", "chat_template.jinja",
// "chat_template.json", "additional_chat_templates/NAME.jinja", "tokenizer.model", "tekken.json",
// "NAME.tiktoken", "model.gguf" (with or without tensors). Others are not looked at.
using TextAssets = std::map<std::string, std::string, std::less<>>;

// The files of a model folder that LoadModelText reads, or of one file (a GGUF by its metadata
// only). NotFound, or InvalidArgument when there is no tokenizer among them.
absl::StatusOr<TextAssets> ReadTextAssets(const std::string& path);

// name is the model's, for messages. The first tokenizer of: tokenizer.json, tekken.json,
// tokenizer.model, *.tiktoken, model.gguf. Control tokens are recognised in template text whatever
// the kind of file. Errors name the file and the key.
absl::StatusOr<ModelText> LoadModelText(const TextAssets& assets, const std::string& name);
absl::StatusOr<ModelText> LoadModelText(const std::string& path);

}  // namespace penstock
