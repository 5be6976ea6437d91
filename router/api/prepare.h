#pragma once

// From a request body to what is submitted: parsing, model name, template, tokenizer, context
// limits, defaults. Slow for long prompts, so it may run on a text thread. Pure apart from the
// clock and the seeds it is given; any thread.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "router/api/api_options.h"
#include "router/api/choice_output.h"
#include "router/api/requests.h"
#include "router/api/response_body.h"
#include "router/api/served_text.h"
#include "router/api/unsupported_fields.h"

namespace penstock {

struct PrepareInput {
  Endpoint endpoint = Endpoint::kChat;
  std::string body;              // as sent
  std::string content_encoding;  // or empty
  std::string request_id;        // from the header, or empty
  std::string priority;          // from the header, or empty
  uint64_t random = 0;           // for the seed and the id, when the request has none
  std::shared_ptr<const LoadedModel> model;
};

struct PreparedPrompt {
  std::vector<int32_t> ids;
  std::string echo;        // printed before the output
  int32_t max_tokens = 0;  // 0: nothing to generate (echo only)
};

struct PreparedRequest {
  std::shared_ptr<const LoadedModel> model;
  SamplingFields fields;
  AnswerInfo info;
  std::string request_id;
  std::vector<PreparedPrompt> prompts;
  ChoiceOutput::Options output;
  GenerationRequest submit;  // everything but prompt ids, max_tokens, choice and group
};

ApiOr<PreparedRequest> Prepare(PrepareInput input, const ApiOptions& options);

// What the text side said of a request's prompt, for the client.
ApiError TextError(const absl::Status& status, const std::string& param);
ChatRules ChatRulesOf(const ApiOptions& options);
// Names that requests may use for this model; the first one is shown.
std::vector<std::string> ServedNames(const ApiOptions& options, const ServedModel& model);
// 404 model_not_found unless the name (or none) is served.
std::optional<ApiError> CheckModelName(const std::string& name, const ApiOptions& options,
                                       const ServedModel& model);
// "penstock-0.1.0-1a2b3c4d"
std::string SystemFingerprint(const ApiOptions& options, const ServedModel& model);
// The body decoded and parsed.
ApiOr<Json> ReadJsonBody(std::string_view content_encoding, std::string body,
                         const ApiOptions& options);

}  // namespace penstock
