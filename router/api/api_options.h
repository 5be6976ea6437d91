#pragma once

// What an operator decides about the API. Read-only after start.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/json/json.h"
#include "common/text/model_text.h"
#include "router/api/admission.h"
#include "router/http/request_parser.h"

namespace penstock {

struct CorsOptions {
  std::vector<std::string> origins;  // empty = off; "*" = any
  std::vector<std::string> methods = {"*"};
  std::vector<std::string> headers = {"*"};
  bool allow_credentials = false;
};

struct ApiOptions {
  std::string version;
  std::vector<std::string> served_names;  // empty = the worker's name for its model
  std::vector<std::string> api_keys;
  bool metrics_open = true;
  bool vllm_metrics = true;
  std::string root_path;  // "/llm", or empty
  CorsOptions cors;
  int32_t max_logprobs = 20;
  bool clamp_overflow = true;  // a max_tokens that does not fit: clamped, or refused
  bool model_defaults = true;  // sampling defaults of the model's generation_config.json
  GenerationDefaults generation_overrides;  // win over the model's
  Json chat_template_kwargs;  // template variables that a request may replace: an object, or null
  bool trust_request_chat_template = false;
  bool processed_logprobs = false;
  bool trust_user_special_tokens = false;
  AdmissionLimits admission;
  uint64_t max_body_bytes = HttpLimits().max_body_bytes;
  int64_t request_timeout_ms = 0;  // 0 = none
  int text_threads = 2;
  // A body larger than this is parsed and tokenised on a text thread.
  size_t inline_body_bytes = 32 << 10;
  bool access_log = true;
};

}  // namespace penstock
