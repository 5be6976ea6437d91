#include "router/api/api_server.h"

#include <algorithm>
#include <array>
#include <random>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/log.h"
#include "router/api/api_call.h"
#include "router/api/clock.h"
#include "router/api/cors.h"

namespace penstock {
namespace {

constexpr size_t kMaxTextTasks = 1024;

// As a label: clients must not be able to make new ones.
std::string_view KnownMethod(std::string_view method) {
  for (const std::string_view known :
       {"GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE", "PATCH"}) {
    if (method == known) return known;
  }
  return "other";
}

// A header that is safe to send back and to log.
bool IsCleanId(std::string_view id) {
  const auto clean = [](char c) { return c > 0x20 && c < 0x7F && c != '"' && c != '\\'; };
  return !id.empty() && id.size() <= 128 && std::all_of(id.begin(), id.end(), clean);
}

}  // namespace

// The route table. A path that ends in '/' stands for everything below it.
struct ApiServer::Route {
  std::string_view path;
  std::string_view method;  // GET stands for HEAD too
  void (ApiServer::*handle)(const CallPtr&);
  bool logged;
};

const ApiServer::Route* ApiServer::FindRoute(std::string_view path) {
  static constexpr auto kRoutes = std::to_array<Route>({
      {"/v1/chat/completions", "POST", &ApiServer::Chat, true},
      {"/v1/completions", "POST", &ApiServer::Completions, true},
      {"/v1/models", "GET", &ApiServer::ListModels, true},
      {"/v1/models/", "GET", &ApiServer::GetModel, true},
      {"/tokenize", "POST", &ApiServer::Tokenize, true},
      {"/detokenize", "POST", &ApiServer::Detokenize, true},
      {"/health", "GET", &ApiServer::Health, false},
      {"/ready", "GET", &ApiServer::Ready, false},
      {"/version", "GET", &ApiServer::Version, true},
      {"/metrics", "GET", &ApiServer::RenderMetrics, false},
  });
  for (const Route& route : kRoutes) {
    if (route.path == path) return &route;
    if (route.path.back() == '/' && path.starts_with(route.path)) return &route;
  }
  return nullptr;
}

ApiServer::ApiServer(ApiOptions options, WorkerPool& pool)
    : options_(std::move(options)),
      pool_(pool),
      auth_(options_.api_keys, options_.metrics_open),
      metrics_(options_.version, options_.vllm_metrics),
      admission_(options_.admission),
      text_(std::max(1, options_.text_threads), kMaxTextTasks) {
  std::random_device device;
  random_ = (uint64_t{device()} << 32) ^ device();
}

ApiServer::~ApiServer() = default;

HttpHooks ApiServer::hooks() {
  return {
      .handler = [this](std::shared_ptr<HttpExchange> exchange) { Handle(std::move(exchange)); },
      .error = [this](
                   const HttpRequest* request, int status,
                   const std::string& message) { return FramingError(request, status, message); },
      .check_head = [this](const HttpRequest& head) { return CheckHead(head); }};
}

void ApiServer::SetModel(std::shared_ptr<const LoadedModel> model) {
  metrics_.SetModel(ServedNames(options_, *model->served).front(), *model->served);
  const std::lock_guard<std::mutex> lock(mutex_);
  model_ = std::move(model);
  model_error_.clear();
}

void ApiServer::SetModelError(std::string reason) {
  const std::lock_guard<std::mutex> lock(mutex_);
  model_error_ = std::move(reason);
}

std::shared_ptr<const LoadedModel> ApiServer::model() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return model_;
}

void ApiServer::BeginDrain() { draining_ = true; }

// SplitMix64 over a counter: never the same twice, good enough for seeds and ids.
uint64_t ApiServer::NextRandom() {
  uint64_t z = random_.fetch_add(0x9E3779B97F4A7C15u) + 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

std::string ApiServer::RoutePath(const HttpRequest& request) const {
  const std::string& root = options_.root_path;
  const std::string& path = request.path;
  if (root.empty() || !path.starts_with(root)) return path;
  if (path.size() == root.size()) return "/";
  return path[root.size()] == '/' ? path.substr(root.size()) : path;
}

HttpHeaders ApiServer::CommonHeaders(const HttpRequest& request) const {
  HttpHeaders headers = CorsHeaders(options_.cors, request);
  if (const std::string_view id = request.header("x-request-id"); IsCleanId(id)) {
    headers.emplace_back("X-Request-Id", std::string(id));
  }
  return headers;
}

HttpResponse ApiServer::FramingError(const HttpRequest* request, int status,
                                     const std::string& message) {
  metrics_.CountHttp("none", "none", status);
  HttpResponse response = ErrorResponse({.status = status, .message = "HTTP: " + message});
  if (request != nullptr) {
    for (auto& header : CorsHeaders(options_.cors, *request)) response.headers.push_back(header);
    if (options_.access_log)
      LogInfo("request peer=%s status=%d %s", request->peer, status, message);
  }
  return response;
}

// The key is asked for before a byte of the body is read.
std::optional<HttpResponse> ApiServer::CheckHead(const HttpRequest& head) {
  const std::string path = RoutePath(head);
  if (auth_.Allows(head, path)) return std::nullopt;
  const bool given = !head.header("authorization").empty();
  HttpResponse response = ErrorResponse(
      {.status = 401,
       .message =
           given ? "Incorrect API key provided: send a valid one as `Authorization: Bearer KEY`."
                 : "You didn't provide an API key: send it as `Authorization: Bearer KEY`.",
       .code = "invalid_api_key",
       .headers = CommonHeaders(head)});
  response.headers.emplace_back("WWW-Authenticate", "Bearer");
  const Route* route = FindRoute(path);
  metrics_.CountHttp(route == nullptr ? "none" : route->path, "any", 401);
  if (options_.access_log) {
    LogInfo("request peer=%s method=%s path=%s status=401", head.peer, head.method, head.path);
  }
  return response;
}

void ApiServer::Handle(std::shared_ptr<HttpExchange> exchange) {
  const HttpRequest& request = exchange->request();
  const auto call = std::make_shared<Call>();
  call->exchange = exchange;
  call->path = RoutePath(request);
  const Route* route = FindRoute(call->path);
  call->route = route == nullptr ? "none" : route->path;
  call->logged = route == nullptr || route->logged;
  const std::string_view given_id = request.header("x-request-id");
  call->request_id =
      IsCleanId(given_id) ? std::string(given_id) : absl::StrFormat("%016x", NextRandom());
  call->headers = CorsHeaders(options_.cors, request);
  call->headers.emplace_back("X-Request-Id", call->request_id);

  if (request.method == "OPTIONS") {
    return Reply(*call, PreflightResponse(options_.cors, request));
  }
  if (route == nullptr) {
    return ReplyError(*call, {.status = 404,
                              .message = absl::StrFormat("Unknown path %s: see /v1/models, "
                                                         "/v1/chat/completions, /v1/completions",
                                                         call->path.substr(0, 200)),
                              .code = "unknown_url"});
  }
  const std::string_view method =
      request.method == "HEAD" ? "GET" : std::string_view(request.method);
  if (method != route->method) {
    const std::string allow = route->method == "GET" ? "GET, HEAD, OPTIONS" : "POST, OPTIONS";
    return ReplyError(*call, {.status = 405,
                              .message = absl::StrFormat("Method %s is not allowed on %s: use %s",
                                                         request.method, route->path, allow),
                              .code = "method_not_allowed",
                              .headers = {{"Allow", allow}}});
  }
  (this->*route->handle)(call);
}

void ApiServer::Reply(Call& call, HttpResponse response) {
  const int status = response.status;
  response.headers.insert(response.headers.end(), call.headers.begin(), call.headers.end());
  metrics_.CountHttp(call.route, KnownMethod(call.exchange->request().method), status);
  call.exchange->Send(std::move(response));
  Log(call, status, nullptr);
}

void ApiServer::ReplyError(Call& call, const ApiError& error) { Reply(call, ErrorResponse(error)); }

void ApiServer::Log(const Call& call, int status, const GenerationSummary* summary) const {
  if (!options_.access_log || (!call.logged && status < 400)) return;
  const HttpRequest& request = call.exchange->request();
  const double ms = SecondsBetween(request.received_ns, NowNs()) * 1e3;
  std::string line =
      absl::StrFormat("request id=%s peer=%s method=%s path=%s status=%d ms=%.1f", call.request_id,
                      request.peer, request.method, request.path.substr(0, 200), status, ms);
  if (summary != nullptr) {
    line += absl::StrFormat(" finish=%s prompt_tokens=%d completion_tokens=%d ttft_ms=%.1f",
                            summary->finish, summary->prompt_tokens, summary->completion_tokens,
                            summary->first_token_seconds * 1e3);
  }
  LogLine(LogLevel::kInfo, line);
}

}  // namespace penstock
