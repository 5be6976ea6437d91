#pragma once

// A pool, an executor and an exchange that a test drives by hand, on one thread.

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "router/http/http.h"
#include "router/pool/pool.h"

namespace penstock {

class ManualExecutor final : public IoExecutor {
 public:
  void Post(std::function<void()> task) override { tasks_.push_back(std::move(task)); }
  void RunAll() {
    while (!tasks_.empty()) {
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      task();
    }
  }

 private:
  std::deque<std::function<void()>> tasks_;
};

// Keeps what was submitted; the test plays the worker.
class ScriptedPool final : public WorkerPool {
 public:
  struct Request {
    GenerationRequest request;
    GenerationSink* sink = nullptr;
    bool cancelled = false;
    int next_index = 0;

    // One engine step with these tokens.
    void Step(const std::vector<int32_t>& ids) {
      for (const int32_t id : ids) {
        if (cancelled) return;
        sink->OnToken(id, next_index++);
      }
      if (!cancelled) sink->OnStepEnd();
    }
    void Text(std::string_view text) {
      for (const char c : text) Step({static_cast<unsigned char>(c)});
    }
    void Finish(GenerationEnd reason, absl::Status status = {}, int32_t stop_id = -1,
                std::string field = {}) {
      if (cancelled) return;
      GenerationFinish finish;
      finish.reason = reason;
      finish.status = std::move(status);
      finish.stop_id = stop_id;
      finish.field = std::move(field);
      finish.cached_tokens = 3;
      finish.prompt_tokens = static_cast<int32_t>(request.prompt_ids.size());
      sink->OnFinish(std::move(finish));
    }
  };

  std::unique_ptr<GenerationHandle> Submit(GenerationRequest request, IoExecutor&,
                                           GenerationSink& sink) override {
    requests.push_back(std::make_shared<Request>());
    requests.back()->request = std::move(request);
    requests.back()->sink = &sink;
    return std::make_unique<Handle>(requests.back());
  }
  std::shared_ptr<const ServedModel> model() const override { return nullptr; }
  std::vector<WorkerStatus> workers() const override {
    return {{.address = "one", .ready = is_ready, .reason = is_ready ? "" : "gone"}};
  }
  bool ready() const override { return is_ready; }
  bool was_ready() const override { return has_been_ready; }

  std::vector<std::shared_ptr<Request>> requests;
  bool is_ready = true;
  bool has_been_ready = false;

 private:
  class Handle final : public GenerationHandle {
   public:
    explicit Handle(std::shared_ptr<Request> request) : request_(std::move(request)) {}
    ~Handle() override { request_->cancelled = true; }
    void Cancel() override { request_->cancelled = true; }

   private:
    const std::shared_ptr<Request> request_;
  };
};

class FakeExchange final : public HttpExchange {
 public:
  FakeExchange(HttpRequest request, ManualExecutor& executor)
      : request_(std::move(request)), executor_(executor) {}

  const HttpRequest& request() const override { return request_; }
  HttpRequest& mutable_request() override { return request_; }
  IoExecutor& executor() override { return executor_; }
  void Send(HttpResponse sent) override {
    if (ended) return;
    response = std::move(sent);
    End();
  }
  void StartStream(HttpHeaders headers) override {
    started = true;
    stream_headers = std::move(headers);
  }
  void WriteStream(std::string_view events) override {
    if (!ended) writes.emplace_back(events);
  }
  void EndStream() override { End(); }
  size_t pending_bytes() const override { return pending; }
  void OnDrained(std::function<void()> callback) override { drained = std::move(callback); }
  void OnClientGone(std::function<void()> callback) override { gone = std::move(callback); }

  void Leave() {
    ended = true;
    if (gone) std::exchange(gone, nullptr)();
  }
  std::string All() const {
    std::string all;
    for (const std::string& write : writes) all += write;
    return all;
  }

  HttpResponse response;
  HttpHeaders stream_headers;
  bool started = false;
  bool ended = false;
  std::vector<std::string> writes;
  size_t pending = 0;
  std::function<void()> drained;
  std::function<void()> gone;

 private:
  void End() {
    ended = true;
    gone = nullptr;
    drained = nullptr;
  }
  HttpRequest request_;
  ManualExecutor& executor_;
};

}  // namespace penstock
