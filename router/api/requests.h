#pragma once

// Request bodies, parsed and validated: chat, completions, tokenize, detokenize. A bad field is an
// error that names it. Pure, any thread.

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/json/json.h"
#include "router/api/error_body.h"
#include "router/api/sampling_fields.h"

namespace penstock {

// Strict JSON (UTF-8, no duplicate keys, bounded depth) whose top level is an object.
ApiOr<Json> ParseBody(std::string_view body);

// What a chat template is rendered from.
struct RequestedChat {
  Json messages;              // normalised, a non-empty array
  Json documents;             // an array of objects, or null
  Json kwargs;                // an object: further template variables (enable_thinking, ...)
  std::string chat_template;  // the request's own, instead of the model's; or empty
  bool add_generation_prompt = true;
  bool continue_final_message = false;
};

// What the operator decided about templates.
struct ChatRules {
  bool trust_chat_template = false;  // a request may bring its own
  Json default_kwargs;               // of requests that do not set them: an object, or null
};

struct ChatRequest {
  SamplingFields fields;
  RequestedChat input;
};
ApiOr<ChatRequest> ParseChatRequest(const Json& body, const FieldLimits& limits,
                                    const ChatRules& rules = {});

// Text, or token ids.
using PromptInput = std::variant<std::string, std::vector<int32_t>>;

struct CompletionRequest {
  SamplingFields fields;
  std::vector<PromptInput> prompts;
};
ApiOr<CompletionRequest> ParseCompletionRequest(const Json& body, const FieldLimits& limits);

struct TokenizeRequest {
  std::string model;
  std::variant<std::string, RequestedChat> input;
  bool add_special_tokens = true;
  bool return_token_strings = false;
};
ApiOr<TokenizeRequest> ParseTokenizeRequest(const Json& body, const ChatRules& rules = {});

struct DetokenizeRequest {
  std::string model;
  std::vector<int32_t> tokens;
};
ApiOr<DetokenizeRequest> ParseDetokenizeRequest(const Json& body);

}  // namespace penstock
