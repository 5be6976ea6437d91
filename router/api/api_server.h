#pragma once

// The HTTP API: routes, keys, errors, and the generation endpoints. Its hooks run on io threads;
// control calls come from main.

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "router/api/api_options.h"
#include "router/api/auth.h"
#include "router/api/generation.h"
#include "router/api/metrics.h"
#include "router/api/text_pool.h"
#include "router/http/http.h"

namespace penstock {

class ApiServer {
 public:
  // pool must outlive the server.
  ApiServer(ApiOptions options, WorkerPool& pool);
  ~ApiServer();

  HttpHooks hooks();
  // Requests are served from now on; before it they are 503.
  void SetModel(std::shared_ptr<const LoadedModel> model);
  // Why there is no model yet, for /ready.
  void SetModelError(std::string reason);

  // New requests are refused from now on, running ones go on.
  void BeginDrain();
  int64_t in_flight() const { return registry_.size(); }
  // Ends what is still running with an error.
  void FailAll(const ApiError& error) { registry_.FailAll(error); }
  // No text work after this.
  void StopText() { text_.Stop(); }

 private:
  struct Call;
  struct Route;
  using CallPtr = std::shared_ptr<Call>;

  void Handle(std::shared_ptr<HttpExchange> exchange);
  std::optional<HttpResponse> CheckHead(const HttpRequest& head);
  HttpResponse FramingError(const HttpRequest* request, int status, const std::string& message);
  static const Route* FindRoute(std::string_view path);

  std::string RoutePath(const HttpRequest& request) const;
  HttpHeaders CommonHeaders(const HttpRequest& request) const;
  void Reply(Call& call, HttpResponse response);
  void ReplyError(Call& call, const ApiError& error);

  void Health(const CallPtr& call);
  void Ready(const CallPtr& call);
  void Version(const CallPtr& call);
  void RenderMetrics(const CallPtr& call);
  void ListModels(const CallPtr& call);
  void GetModel(const CallPtr& call);
  void Chat(const CallPtr& call) { Generate(call, Endpoint::kChat); }
  void Completions(const CallPtr& call) { Generate(call, Endpoint::kCompletions); }
  void Tokenize(const CallPtr& call);
  void Detokenize(const CallPtr& call);

  void Generate(const CallPtr& call, Endpoint endpoint);
  void StartGeneration(const CallPtr& call, PreparedRequest request);
  // The loaded model, or the 503 that was sent.
  std::shared_ptr<const LoadedModel> ModelFor(const CallPtr& call);
  std::optional<ApiError> CheckContentType(const HttpRequest& request) const;
  // Runs work (any thread) and then hands its result to finish on the call's io thread: at once
  // for a small body, on a text thread for a large one.
  template <typename T>
  void RunText(const CallPtr& call, std::function<T()> work, std::function<void(T)> finish);

  std::shared_ptr<const LoadedModel> model() const;
  std::string NotReadyReason() const;
  uint64_t NextRandom();
  void Log(const Call& call, int status, const GenerationSummary* summary) const;

  const ApiOptions options_;
  WorkerPool& pool_;
  const Auth auth_;
  Metrics metrics_;
  Admission admission_;
  GenerationRegistry registry_;
  TextPool text_;
  std::atomic<bool> draining_ = false;
  std::atomic<uint64_t> random_;
  mutable std::mutex mutex_;
  std::shared_ptr<const LoadedModel> model_;               // guarded by mutex_
  std::string model_error_ = "no worker was reached yet";  // guarded by mutex_
};

}  // namespace penstock
