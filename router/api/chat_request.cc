#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_format.h"
#include "router/api/chat_messages.h"
#include "router/api/requests.h"
#include "router/api/unsupported_fields.h"

namespace penstock {
namespace {

constexpr int kMaxDepth = 64;
constexpr auto kEfforts =
    std::to_array<std::string_view>({"none", "minimal", "low", "medium", "high", "xhigh", "max"});

void ReadMaxTokens(FieldReader& reader, SamplingFields* out) {
  // The newer name wins; the older one must be right all the same.
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    const auto value = reader.Int(name);
    if (!value.has_value()) continue;
    if (*value < 1) {
      reader.Fail(name, absl::StrFormat("%s must be at least 1, got %d.", name, *value));
    }
    out->max_tokens = value;
    out->max_tokens_field = name;
  }
}

void ReadChatLogprobs(FieldReader& reader, const FieldLimits& limits, SamplingFields* out) {
  out->logprobs = reader.Bool("logprobs").value_or(false);
  const auto top = reader.Int("top_logprobs");
  if (!top.has_value()) return;
  if (*top < -1) {
    return reader.Fail("top_logprobs", "`top_logprobs` must be a positive value or -1.");
  }
  if (*top != 0 && !out->logprobs) {
    return reader.Fail("top_logprobs",
                       "when using `top_logprobs`, `logprobs` must be set to true.");
  }
  CheckTopLogprobs(reader, "top_logprobs", *top, limits, out);
}

// Shared by chat and /tokenize.
ApiOr<RequestedChat> ReadChat(FieldReader& reader, const ChatRules& rules) {
  RequestedChat input;
  if (reader.Get("chat_template") != nullptr) {
    if (!rules.trust_chat_template) {
      return BadField("chat_template",
                      "Chat template is passed with request, but --trust-request-chat-template "
                      "is not set. Refused request with untrusted chat template.");
    }
    input.chat_template = reader.String("chat_template").value_or("");
  }
  const Json* messages = reader.Get("messages");
  if (messages == nullptr) return BadField("messages", "messages is required");
  ApiOr<Json> normalized = NormalizeMessages(*messages);
  if (!normalized.ok()) return normalized.error();
  input.messages = std::move(normalized.value());
  input.kwargs = rules.default_kwargs.is_object() ? rules.default_kwargs : Json(Json::Object{});
  if (const Json* documents = reader.Get("documents")) {
    if (!documents->is_array()) {
      return BadField("documents", "documents must be a list, got " + ShowValue(*documents));
    }
    input.documents = *documents;
  }
  if (const auto effort = reader.String("reasoning_effort")) {
    if (std::find(kEfforts.begin(), kEfforts.end(), *effort) == kEfforts.end()) {
      return BadField("reasoning_effort",
                      "reasoning_effort must be one of none, minimal, low, medium, high, xhigh "
                      "and max");
    }
    input.kwargs.Set("reasoning_effort", *effort);
    input.kwargs.Set("enable_thinking", *effort != "none");
  }
  if (const Json* kwargs = reader.Get("chat_template_kwargs")) {
    if (!kwargs->is_object()) {
      return BadField("chat_template_kwargs",
                      "chat_template_kwargs must be an object, got " + ShowValue(*kwargs));
    }
    for (const JsonMember& member : kwargs->as_object()) input.kwargs.Set(member.key, member.value);
  }
  const auto generation = reader.Bool("add_generation_prompt");
  const auto continuation = reader.Bool("continue_final_message");
  if (generation.value_or(false) && continuation.value_or(false)) {
    return BadField("continue_final_message",
                    "Cannot set both `continue_final_message` and `add_generation_prompt` to "
                    "True.");
  }
  input.continue_final_message = continuation.value_or(false);
  input.add_generation_prompt = generation.value_or(!input.continue_final_message);
  if (!reader.ok()) return reader.error();
  return input;
}

}  // namespace

ApiOr<Json> ParseBody(std::string_view body) {
  absl::StatusOr<Json> parsed =
      Json::Parse(body, {.max_depth = kMaxDepth, .reject_duplicate_keys = true});
  if (!parsed.ok()) {
    return ApiError{
        .message = "The request body is not valid JSON: " + std::string(parsed.status().message()),
        .code = "invalid_json"};
  }
  if (!parsed->is_object()) {
    return ApiError{.message = absl::StrFormat("The request body must be a JSON object, got %s",
                                               parsed->type_name()),
                    .code = "invalid_json"};
  }
  return *std::move(parsed);
}

ApiOr<ChatRequest> ParseChatRequest(const Json& body, const FieldLimits& limits,
                                    const ChatRules& rules) {
  ChatRequest request;
  FieldReader reader(body);
  ReadSamplingFields(reader, limits, &request.fields);
  ReadMaxTokens(reader, &request.fields);
  ReadChatLogprobs(reader, limits, &request.fields);
  RefuseUnsupported(reader, Endpoint::kChat);
  if (!reader.ok()) return reader.error();
  ApiOr<RequestedChat> input = ReadChat(reader, rules);
  if (!input.ok()) return input.error();
  request.input = std::move(input.value());
  return request;
}

ApiOr<TokenizeRequest> ParseTokenizeRequest(const Json& body, const ChatRules& rules) {
  TokenizeRequest request;
  FieldReader reader(body);
  request.model = reader.String("model").value_or("");
  request.return_token_strings = reader.Bool("return_token_strs").value_or(false);
  const bool chat = reader.Get("messages") != nullptr;
  request.add_special_tokens = reader.Bool("add_special_tokens").value_or(!chat);
  if (!chat) {
    const auto prompt = reader.String("prompt");
    if (reader.ok() && !prompt.has_value()) {
      return BadField("prompt", "prompt (a string) or messages is required");
    }
    if (prompt.has_value()) request.input = *prompt;
  }
  if (!reader.ok()) return reader.error();
  if (chat) {
    const Json* tools = reader.Get("tools");
    if (tools != nullptr && !(tools->is_array() && tools->as_array().empty())) {
      return NotSupported("tools", "`tools` (tool calling)");
    }
    ApiOr<RequestedChat> input = ReadChat(reader, rules);
    if (!input.ok()) return input.error();
    request.input = std::move(input.value());
  }
  return request;
}

}  // namespace penstock
