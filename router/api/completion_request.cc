#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "router/api/requests.h"
#include "router/api/unsupported_fields.h"

namespace penstock {
namespace {

constexpr size_t kMaxPrompts = 1024;
constexpr int64_t kDefaultMaxTokens = 16;

std::optional<ApiError> ReadIds(const Json& list, const FieldLimits& limits,
                                std::vector<int32_t>* out) {
  out->reserve(list.as_array().size());
  for (const Json& item : list.as_array()) {
    const std::optional<int64_t> id = item.is_integer() ? item.ToInt64() : std::nullopt;
    if (!id.has_value() || *id < 0 || *id >= limits.vocab_size) {
      return BadField("prompt",
                      absl::StrFormat("prompt must contain token ids from 0 to %d, got %s",
                                      limits.vocab_size - 1, ShowValue(item)));
    }
    out->push_back(static_cast<int32_t>(*id));
  }
  return std::nullopt;
}

ApiError NoPrompt() {
  return BadField("prompt", "Either prompt or prompt_embeds must be provided and non-empty.");
}

ApiOr<std::vector<PromptInput>> ReadPrompts(FieldReader& reader, const FieldLimits& limits) {
  const Json* prompt = reader.Get("prompt");
  if (prompt == nullptr) return NoPrompt();
  if (prompt->is_string()) return std::vector<PromptInput>{prompt->as_string()};
  if (!prompt->is_array()) {
    return BadField("prompt",
                    "prompt must be a string, a list of strings, a list of token ids or "
                    "a list of lists of token ids, got " +
                        ShowValue(*prompt));
  }
  const Json::Array& items = prompt->as_array();
  if (items.empty()) return NoPrompt();
  std::vector<PromptInput> prompts;
  if (items.front().is_number()) {
    std::vector<int32_t> ids;
    if (auto error = ReadIds(*prompt, limits, &ids)) return *error;
    prompts.emplace_back(std::move(ids));
    return prompts;
  }
  if (items.size() > kMaxPrompts) {
    return BadField("prompt", absl::StrFormat("prompt has %d prompts, at most %d are allowed",
                                              items.size(), kMaxPrompts));
  }
  for (const Json& item : items) {
    if (item.is_string()) {
      prompts.emplace_back(item.as_string());
    } else if (item.is_array() && !item.as_array().empty()) {
      std::vector<int32_t> ids;
      if (auto error = ReadIds(item, limits, &ids)) return *error;
      prompts.emplace_back(std::move(ids));
    } else {
      return BadField("prompt", "prompt must hold strings or non-empty lists of token ids, got " +
                                    ShowValue(item));
    }
  }
  return prompts;
}

void ReadMaxTokens(FieldReader& reader, SamplingFields* out) {
  out->max_tokens = kDefaultMaxTokens;
  const auto value = reader.Int("max_tokens");
  if (!value.has_value()) return;
  out->max_tokens = value;
  if (*value < (out->echo ? 0 : 1)) {
    reader.Fail("max_tokens", absl::StrFormat("max_tokens must be at least 1, got %d.", *value));
  }
}

void ReadLogprobs(FieldReader& reader, const FieldLimits& limits, SamplingFields* out) {
  const auto count = reader.Int("logprobs");
  if (!count.has_value()) return;
  if (*count < 0) return reader.Fail("logprobs", "`logprobs` must be a positive value.");
  out->logprobs = true;
  CheckTopLogprobs(reader, "logprobs", *count, limits, out);
  if (out->echo) {
    reader.Fail(NotSupported("echo", "`echo` together with `logprobs` (scoring of the prompt)"));
  }
}

}  // namespace

ApiOr<CompletionRequest> ParseCompletionRequest(const Json& body, const FieldLimits& limits) {
  CompletionRequest request;
  FieldReader reader(body);
  ReadSamplingFields(reader, limits, &request.fields);
  ReadMaxTokens(reader, &request.fields);
  ReadLogprobs(reader, limits, &request.fields);
  RefuseUnsupported(reader, Endpoint::kCompletions);
  if (!reader.ok()) return reader.error();
  ApiOr<std::vector<PromptInput>> prompts = ReadPrompts(reader, limits);
  if (!prompts.ok()) return prompts.error();
  request.prompts = std::move(prompts.value());
  const auto choices = static_cast<int64_t>(request.prompts.size()) * request.fields.n;
  if (choices > limits.max_choices) {
    return BadField("n", absl::StrFormat("%d prompts times n = %d are %d choices, at most %d are "
                                         "allowed",
                                         request.prompts.size(), request.fields.n, choices,
                                         limits.max_choices));
  }
  return request;
}

ApiOr<DetokenizeRequest> ParseDetokenizeRequest(const Json& body) {
  DetokenizeRequest request;
  FieldReader reader(body);
  request.model = reader.String("model").value_or("");
  if (reader.Get("tokens") == nullptr) return BadField("tokens", "tokens is required");
  request.tokens = reader.TokenIds("tokens");
  if (!reader.ok()) return reader.error();
  return request;
}

}  // namespace penstock
