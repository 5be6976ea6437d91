#include "router/api/prepare.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <utility>

#include "absl/strings/str_format.h"
#include "router/api/chat_messages.h"
#include "router/api/context_limits.h"
#include "router/http/content_coding.h"

namespace penstock {
namespace {

// A template that costs too much will cost too much again: not a 429, which clients retry.
bool IsRequestsFault(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsResourceExhausted(status);
}

FieldLimits LimitsOf(const ApiOptions& options, const ServedModel& model) {
  return {.vocab_size = model.vocab_size,
          .max_choices = options.admission.max_requests,
          .max_logprobs = options.max_logprobs};
}

GenerationDefaults DefaultsOf(const ApiOptions& options, const ServedText& text) {
  GenerationDefaults defaults;
  if (options.model_defaults) defaults = text.defaults();
  const auto override = [](auto* value, const auto& by) {
    if (by.has_value()) *value = by;
  };
  const GenerationDefaults& by = options.generation_overrides;
  override(&defaults.temperature, by.temperature);
  override(&defaults.top_p, by.top_p);
  override(&defaults.top_k, by.top_k);
  override(&defaults.min_p, by.min_p);
  override(&defaults.repetition_penalty, by.repetition_penalty);
  override(&defaults.max_new_tokens, by.max_new_tokens);
  return defaults;
}

// Turns one prompt into ids and checks that it fits.
class PromptBuilder {
 public:
  PromptBuilder(const LoadedModel& model, const ApiOptions& options, const SamplingFields& fields,
                std::string param)
      : model_(model), options_(options), fields_(fields), param_(std::move(param)) {}

  std::optional<ApiError> CheckBytes(size_t bytes) const {
    if (fields_.truncate_prompt_tokens.has_value()) return std::nullopt;
    return CheckPromptBytes(bytes, model_.text->max_token_bytes(), model_.served->max_model_len,
                            param_);
  }

  ApiOr<PreparedPrompt> Finish(absl::StatusOr<std::vector<int32_t>> ids) const {
    if (!ids.ok()) return TextError(ids.status(), param_);
    PreparedPrompt prompt;
    prompt.ids = *std::move(ids);
    Truncate(&prompt.ids);
    if (prompt.ids.empty()) {
      return BadField(param_, "the prompt has no tokens: give some text, or token ids");
    }
    TokenBudget budget{.limit = model_.served->max_model_len,
                       .prompt_tokens = static_cast<int64_t>(prompt.ids.size()),
                       .max_tokens = fields_.max_tokens,
                       .clamp = options_.clamp_overflow,
                       .prompt_param = param_};
    budget.model_default = DefaultsOf(options_, *model_.text).max_new_tokens;
    ApiOr<int32_t> tokens = OutputTokens(budget);
    if (!tokens.ok()) return tokens.error();
    prompt.max_tokens = tokens.value();
    return prompt;
  }

 private:
  void Truncate(std::vector<int32_t>* ids) const {
    if (!fields_.truncate_prompt_tokens.has_value()) return;
    const int64_t keep = *fields_.truncate_prompt_tokens == -1 ? model_.served->max_model_len - 1
                                                               : *fields_.truncate_prompt_tokens;
    const int64_t drop = static_cast<int64_t>(ids->size()) - keep;
    if (drop <= 0) return;
    if (fields_.truncate_right) {
      ids->resize(static_cast<size_t>(keep));
    } else {
      ids->erase(ids->begin(), ids->begin() + drop);
    }
  }

  const LoadedModel& model_;
  const ApiOptions& options_;
  const SamplingFields& fields_;
  const std::string param_;
};

std::string EchoedMessage(const RequestedChat& input) {
  const Json& last = input.messages.as_array().back();
  const Json* role = last.Find("role");
  const Json* content = last.Find("content");
  if (role->as_string() != "assistant" || content == nullptr || !content->is_string()) return {};
  return content->as_string();
}

std::optional<ApiError> PrepareChat(const Json& body, const ApiOptions& options,
                                    PreparedRequest* out) {
  ApiOr<ChatRequest> parsed =
      ParseChatRequest(body, LimitsOf(options, *out->model->served), ChatRulesOf(options));
  if (!parsed.ok()) return parsed.error();
  ChatRequest& request = parsed.value();
  out->fields = std::move(request.fields);
  const PromptBuilder builder(*out->model, options, out->fields, "messages");
  if (auto error = builder.CheckBytes(StringBytes(request.input.messages))) return error;
  const bool add_special = out->fields.add_special_tokens.value_or(false);
  ApiOr<PreparedPrompt> prompt =
      builder.Finish(out->model->text->EncodeChat(request.input, add_special));
  if (!prompt.ok()) return prompt.error();
  if (out->fields.echo) prompt.value().echo = EchoedMessage(request.input);
  out->prompts.push_back(std::move(prompt.value()));
  return std::nullopt;
}

std::optional<ApiError> PrepareCompletion(const Json& body, const ApiOptions& options,
                                          PreparedRequest* out) {
  ApiOr<CompletionRequest> parsed =
      ParseCompletionRequest(body, LimitsOf(options, *out->model->served));
  if (!parsed.ok()) return parsed.error();
  CompletionRequest& request = parsed.value();
  out->fields = std::move(request.fields);
  const ServedText& text = *out->model->text;
  const PromptBuilder builder(*out->model, options, out->fields, "prompt");
  for (PromptInput& input : request.prompts) {
    absl::StatusOr<std::vector<int32_t>> ids;
    auto* string = std::get_if<std::string>(&input);
    if (string != nullptr) {
      if (auto error = builder.CheckBytes(string->size())) return error;
      ids = text.Encode(*string, out->fields.add_special_tokens.value_or(true));
    } else {
      ids = std::move(std::get<std::vector<int32_t>>(input));
    }
    ApiOr<PreparedPrompt> prompt = builder.Finish(std::move(ids));
    if (!prompt.ok()) return prompt.error();
    if (out->fields.echo) {
      prompt.value().echo = string != nullptr
                                ? std::move(*string)
                                : text.Decode(prompt.value().ids, out->fields.skip_special_tokens);
    }
    out->prompts.push_back(std::move(prompt.value()));
  }
  return std::nullopt;
}

void FillSampling(const ApiOptions& options, uint64_t random, PreparedRequest* out) {
  const SamplingFields& fields = out->fields;
  const GenerationDefaults defaults = DefaultsOf(options, *out->model->text);
  GenerationRequest& submit = out->submit;
  const auto pick = [](const auto& asked, const auto& fallback, auto neutral) {
    return asked.value_or(fallback.value_or(neutral));
  };
  submit.temperature = static_cast<float>(pick(fields.temperature, defaults.temperature, 1.0));
  submit.top_p = static_cast<float>(pick(fields.top_p, defaults.top_p, 1.0));
  submit.top_k = static_cast<int32_t>(
      std::clamp<int64_t>(pick(fields.top_k, defaults.top_k, int64_t{0}), 0, INT32_MAX));
  submit.min_p = static_cast<float>(pick(fields.min_p, defaults.min_p, 0.0));
  submit.repetition_penalty =
      static_cast<float>(pick(fields.repetition_penalty, defaults.repetition_penalty, 1.0));
  submit.presence_penalty = static_cast<float>(fields.presence_penalty);
  submit.frequency_penalty = static_cast<float>(fields.frequency_penalty);
  submit.logit_bias = fields.logit_bias;
  submit.allowed_token_ids = fields.allowed_token_ids;
  submit.seed = fields.seed.value_or(random);
  submit.top_logprobs = fields.logprobs ? fields.top_logprobs : -1;
  submit.processed_logprobs = options.processed_logprobs;
  submit.priority = fields.priority;
  submit.cache_salt = fields.cache_salt;
  submit.trace_id = out->request_id;
  submit.deadline_ms = options.request_timeout_ms;
}

void FillStops(PreparedRequest* out) {
  const SamplingFields& fields = out->fields;
  ChoiceOutput::Options& output = out->output;
  output.stops = fields.stop;
  output.include_stop = fields.include_stop;
  output.min_tokens = static_cast<int32_t>(fields.min_tokens);
  if (!fields.ignore_eos) output.eos_ids = out->model->served->eos_token_ids;
  output.stop_token_ids = fields.stop_token_ids;
  output.skip_special = fields.skip_special_tokens;
  output.keep_records = fields.logprobs || fields.return_token_ids;
  out->submit.ignore_eos = fields.ignore_eos;
  out->submit.min_tokens = output.min_tokens;
  out->submit.stop_token_ids = fields.stop_token_ids;
  // Before min_tokens the worker masks its stop ids, while a stop string only does not count.
  if (output.min_tokens > 0) return;
  for (const std::string& stop : fields.stop) {
    if (const auto id = out->model->text->SingleToken(stop)) {
      output.stop_string_ids.emplace_back(*id, stop);
      out->submit.stop_token_ids.push_back(*id);
    }
  }
}

std::string MakeRequestId(const PrepareInput& input, const SamplingFields& fields) {
  if (!input.request_id.empty()) return input.request_id;
  if (!fields.request_id.empty()) return fields.request_id;
  return absl::StrFormat("%016x", input.random);
}

}  // namespace

ApiError TextError(const absl::Status& status, const std::string& param) {
  ApiError error = FromStatus(status, param);
  if (!IsRequestsFault(status)) return error;
  return ApiError{.message = error.message, .param = error.param};
}

ChatRules ChatRulesOf(const ApiOptions& options) {
  return {.trust_chat_template = options.trust_request_chat_template,
          .default_kwargs = options.chat_template_kwargs};
}

std::vector<std::string> ServedNames(const ApiOptions& options, const ServedModel& model) {
  if (!options.served_names.empty()) return options.served_names;
  return {model.name};
}

std::optional<ApiError> CheckModelName(const std::string& name, const ApiOptions& options,
                                       const ServedModel& model) {
  const std::vector<std::string> names = ServedNames(options, model);
  if (name.empty() || std::find(names.begin(), names.end(), name) != names.end()) {
    return std::nullopt;
  }
  std::string served;
  for (const std::string& known : names) served += (served.empty() ? "`" : ", `") + known + "`";
  return ApiError{.status = 404,
                  .message = absl::StrFormat("The model `%s` does not exist. Served: %s.",
                                             name.substr(0, 200), served),
                  .param = "model",
                  .code = "model_not_found"};
}

std::string SystemFingerprint(const ApiOptions& options, const ServedModel& model) {
  return absl::StrFormat("penstock-%s-%s", options.version, model.fingerprint.substr(0, 8));
}

ApiOr<Json> ReadJsonBody(std::string_view content_encoding, std::string body,
                         const ApiOptions& options) {
  absl::StatusOr<std::string> decoded =
      DecodeContent(content_encoding, std::move(body), options.max_body_bytes);
  if (decoded.ok()) return ParseBody(*decoded);
  ApiError error{.message = std::string(decoded.status().message())};
  if (absl::IsUnimplemented(decoded.status())) error.status = 415;
  if (absl::IsResourceExhausted(decoded.status())) error.status = 413;
  return error;
}

ApiOr<PreparedRequest> Prepare(PrepareInput input, const ApiOptions& options) {
  ApiOr<Json> body = ReadJsonBody(input.content_encoding, std::move(input.body), options);
  if (!body.ok()) return body.error();
  PreparedRequest out;
  out.model = input.model;
  const ServedModel& served = *out.model->served;
  if (const Json* name = body.value().Find("model"); name != nullptr && name->is_string()) {
    if (auto error = CheckModelName(name->as_string(), options, served)) return *error;
  }
  auto error = input.endpoint == Endpoint::kChat ? PrepareChat(body.value(), options, &out)
                                                 : PrepareCompletion(body.value(), options, &out);
  if (error.has_value()) return *std::move(error);
  SamplingFields& fields = out.fields;
  if (!input.priority.empty()) {
    const char* end = input.priority.data() + input.priority.size();
    if (std::from_chars(input.priority.data(), end, fields.priority).ptr != end) {
      return BadField("X-Vllm-Priority", "the header X-Vllm-Priority must be an integer");
    }
  }
  if (fields.max_tokens.has_value() && fields.min_tokens > *fields.max_tokens) {
    return BadField("min_tokens",
                    absl::StrFormat("min_tokens must be less than or equal to max_tokens=%d, got "
                                    "%d.",
                                    *fields.max_tokens, fields.min_tokens));
  }
  out.request_id = MakeRequestId(input, fields);
  FillSampling(options, input.random, &out);
  FillStops(&out);
  AnswerInfo& info = out.info;
  info.chat = input.endpoint == Endpoint::kChat;
  info.id = (info.chat ? "chatcmpl-" : "cmpl-") + out.request_id;
  info.created = static_cast<int64_t>(std::time(nullptr));
  info.model = fields.model.empty() ? ServedNames(options, served).front() : fields.model;
  info.fingerprint = SystemFingerprint(options, served);
  info.include_usage = fields.include_usage;
  info.continuous_usage = fields.continuous_usage;
  info.logprobs = fields.logprobs;
  info.style = {.top = fields.top_logprobs, .tokens_as_ids = fields.tokens_as_ids};
  info.return_token_ids = fields.return_token_ids;
  return out;
}

}  // namespace penstock
