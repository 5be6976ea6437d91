// The endpoints that generate or tokenise: from a complete HTTP request to a started Generation.

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/json/json_writer.h"
#include "router/api/api_call.h"
#include "router/api/api_server.h"
#include "router/api/clock.h"

namespace penstock {
namespace {

constexpr int kDrainRetrySeconds = 5;

std::string MediaType(std::string_view header) {
  std::string type(header.substr(0, header.find(';')));
  std::transform(type.begin(), type.end(), type.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  while (!type.empty() && (type.back() == ' ' || type.back() == '\t')) type.pop_back();
  return type;
}

}  // namespace

template <typename T>
void ApiServer::RunText(const CallPtr& call, std::function<T()> work,
                        std::function<void(T)> finish) {
  const HttpRequest& request = call->exchange->request();
  // Compressed bodies may be anything once they are decoded.
  if (request.body.size() <= options_.inline_body_bytes &&
      request.header("content-encoding").empty()) {
    return finish(work());
  }
  call->exchange->OnClientGone([call] { call->gone = true; });
  IoExecutor& executor = call->exchange->executor();
  const bool taken = text_.Submit([call, &executor, work, finish] {
    auto result = std::make_shared<T>(work());
    executor.Post([call, result, finish] {
      if (!call->gone) finish(std::move(*result));
    });
  });
  if (taken) return;
  metrics_.CountRefused("text_queue_full");
  ReplyError(*call, {.status = 429,
                     .message = "The server is overloaded: too many long prompts wait to be "
                                "tokenized.",
                     .code = "queue_full",
                     .retry_after_s = 1});
}

std::optional<ApiError> ApiServer::CheckContentType(const HttpRequest& request) const {
  const std::string type = MediaType(request.header("content-type"));
  const bool json = type == "application/json" || type == "text/json" ||
                    (type.starts_with("application/") && type.ends_with("+json"));
  // `curl -d` without a header sends the form type; people rely on it being read as JSON.
  if (json || type.empty() || type == "application/x-www-form-urlencoded") return std::nullopt;
  return ApiError{.status = 415,
                  .message = "Unsupported Media Type: Only 'application/json' is allowed",
                  .code = "unsupported_media_type"};
}

std::string ApiServer::NotReadyReason() const {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (model_ == nullptr) return "the model is not loaded: " + model_error_;
  }
  std::string reason = "no worker is ready";
  for (const WorkerStatus& worker : pool_.workers()) {
    reason += absl::StrFormat("; %s: %s", worker.address, worker.reason);
  }
  return reason;
}

std::shared_ptr<const LoadedModel> ApiServer::ModelFor(const CallPtr& call) {
  if (draining_) {
    metrics_.CountRefused("draining");
    ReplyError(*call, {.status = 503,
                       .message = "The server is shutting down: send the request elsewhere, or "
                                  "again later.",
                       .code = "draining",
                       .retry_after_s = kDrainRetrySeconds,
                       .headers = {{"connection", "close"}}});
    return nullptr;
  }
  std::shared_ptr<const LoadedModel> loaded = model();
  if (loaded != nullptr && pool_.ready()) return loaded;
  metrics_.CountRefused("not_ready");
  ReplyError(*call, {.status = 503,
                     .message = "The server cannot serve yet: " + NotReadyReason(),
                     .code = "not_ready",
                     .retry_after_s = 1});
  return nullptr;
}

void ApiServer::Generate(const CallPtr& call, Endpoint endpoint) {
  const std::shared_ptr<const LoadedModel> loaded = ModelFor(call);
  if (loaded == nullptr) return;
  HttpRequest& request = call->exchange->mutable_request();
  if (auto error = CheckContentType(request)) return ReplyError(*call, *error);
  const auto input = std::make_shared<PrepareInput>();
  input->endpoint = endpoint;
  input->content_encoding = std::string(request.header("content-encoding"));
  input->request_id = request.header("x-request-id") == call->request_id ? call->request_id : "";
  input->priority = std::string(request.header("x-vllm-priority"));
  input->random = NextRandom();
  input->model = loaded;
  RunText<ApiOr<PreparedRequest>>(
      call,
      [this, call, input] {
        const int64_t begin = NowNs();
        input->body = std::move(call->exchange->mutable_request().body);
        ApiOr<PreparedRequest> prepared = Prepare(std::move(*input), options_);
        metrics_.ObservePrepare(SecondsBetween(begin, NowNs()));
        return prepared;
      },
      [this, call](ApiOr<PreparedRequest> prepared) {
        if (!prepared.ok()) return ReplyError(*call, prepared.error());
        StartGeneration(call, std::move(prepared.value()));
      });
}

void ApiServer::StartGeneration(const CallPtr& call, PreparedRequest request) {
  int64_t tokens = 0;
  int64_t choices = 0;
  for (const PreparedPrompt& prompt : request.prompts) {
    if (prompt.max_tokens == 0) continue;
    choices += request.fields.n;
    tokens += static_cast<int64_t>(prompt.ids.size()) * request.fields.n;
  }
  if (choices > 0) {
    if (auto error = admission_.Enter(choices, tokens, NowNs())) {
      metrics_.CountRefused("queue_full");
      return ReplyError(*call, *error);
    }
  }
  call->request_id = request.request_id;
  const GenerationContext context{options_, pool_, metrics_, admission_, registry_};
  HttpHeaders headers = call->headers;
  headers.back().second = request.request_id;  // X-Request-Id
  Generation::Start(context, call->exchange, std::move(request), std::move(headers),
                    [this, call](const GenerationSummary& summary) {
                      metrics_.CountHttp(call->route, "POST", summary.status);
                      Log(*call, summary.status, &summary);
                    });
}

void ApiServer::Tokenize(const CallPtr& call) {
  const std::shared_ptr<const LoadedModel> loaded = ModelFor(call);
  if (loaded == nullptr) return;
  if (auto error = CheckContentType(call->exchange->request())) return ReplyError(*call, *error);
  const auto work = [this, call, loaded]() -> ApiOr<std::string> {
    HttpRequest& request = call->exchange->mutable_request();
    ApiOr<Json> body =
        ReadJsonBody(request.header("content-encoding"), std::move(request.body), options_);
    if (!body.ok()) return body.error();
    ApiOr<TokenizeRequest> parsed = ParseTokenizeRequest(body.value(), ChatRulesOf(options_));
    if (!parsed.ok()) return parsed.error();
    const TokenizeRequest& wanted = parsed.value();
    if (auto error = CheckModelName(wanted.model, options_, *loaded->served)) return *error;
    const auto* chat = std::get_if<RequestedChat>(&wanted.input);
    const absl::StatusOr<std::vector<int32_t>> ids =
        chat != nullptr
            ? loaded->text->EncodeChat(*chat, wanted.add_special_tokens)
            : loaded->text->Encode(std::get<std::string>(wanted.input), wanted.add_special_tokens);
    if (!ids.ok()) {
      return TextError(ids.status(), chat != nullptr ? "messages" : "prompt");
    }
    std::string out;
    JsonWriter json(&out);
    json.BeginObject().Key("count").Int(static_cast<int64_t>(ids->size()));
    json.Key("max_model_len").Int(loaded->served->max_model_len).Key("tokens").BeginArray();
    for (const int32_t id : *ids) json.Int(id);
    json.EndArray().Key("token_strs");
    if (wanted.return_token_strings) {
      json.BeginArray();
      for (const int32_t id : *ids) json.String(loaded->text->TokenPiece(id));
      json.EndArray();
    } else {
      json.Null();
    }
    json.EndObject();
    return out;
  };
  RunText<ApiOr<std::string>>(call, work, [this, call](ApiOr<std::string> result) {
    if (!result.ok()) return ReplyError(*call, result.error());
    Reply(*call, {.body = std::move(result.value())});
  });
}

void ApiServer::Detokenize(const CallPtr& call) {
  const std::shared_ptr<const LoadedModel> loaded = ModelFor(call);
  if (loaded == nullptr) return;
  if (auto error = CheckContentType(call->exchange->request())) return ReplyError(*call, *error);
  const auto work = [this, call, loaded]() -> ApiOr<std::string> {
    HttpRequest& request = call->exchange->mutable_request();
    ApiOr<Json> body =
        ReadJsonBody(request.header("content-encoding"), std::move(request.body), options_);
    if (!body.ok()) return body.error();
    ApiOr<DetokenizeRequest> parsed = ParseDetokenizeRequest(body.value());
    if (!parsed.ok()) return parsed.error();
    if (auto error = CheckModelName(parsed.value().model, options_, *loaded->served)) return *error;
    for (const int32_t id : parsed.value().tokens) {
      if (id >= loaded->served->vocab_size) {
        return BadField("tokens", absl::StrFormat("token id %d is not below the vocabulary size %d",
                                                  id, loaded->served->vocab_size));
      }
    }
    std::string out;
    JsonWriter json(&out);
    json.BeginObject().Key("prompt").String(loaded->text->Decode(parsed.value().tokens, false));
    json.EndObject();
    return out;
  };
  RunText<ApiOr<std::string>>(call, work, [this, call](ApiOr<std::string> result) {
    if (!result.ok()) return ReplyError(*call, result.error());
    Reply(*call, {.body = std::move(result.value())});
  });
}

}  // namespace penstock
