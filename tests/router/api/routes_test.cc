// Routes, keys, CORS and readiness, without sockets.

#include <algorithm>

#include "fake_text.h"
#include "fake_world.h"
#include "gtest/gtest.h"
#include "router/api/api_server.h"

namespace penstock {
namespace {

class RoutesTest : public testing::Test {
 protected:
  void Make(ApiOptions options) {
    options.version = "9.9";
    options.access_log = false;
    server_ = std::make_unique<ApiServer>(std::move(options), pool_);
  }
  void Load() {
    server_->SetModel(
        std::make_shared<LoadedModel>(LoadedModel{FakeModel(), std::make_shared<FakeText>()}));
  }
  HttpResponse Call(const std::string& method, const std::string& path, HttpHeaders headers = {},
                    std::string body = {}) {
    HttpRequest request{.method = method, .path = path, .headers = std::move(headers)};
    const HttpHooks hooks = server_->hooks();
    if (auto refused = hooks.check_head(request)) return *refused;
    request.body = std::move(body);
    const auto exchange = std::make_shared<FakeExchange>(std::move(request), executor_);
    hooks.handler(exchange);
    return exchange->response;
  }
  static std::string Header(const HttpResponse& response, const std::string& name) {
    for (const auto& [key, value] : response.headers) {
      if (key == name) return value;
    }
    return "";
  }

  ManualExecutor executor_;
  ScriptedPool pool_;
  std::unique_ptr<ApiServer> server_;
};

// Field case 53: deny by default.
TEST_F(RoutesTest, EveryRouteNeedsTheKeyButTheShortList) {
  Make({.api_keys = {"one", "two"}, .metrics_open = false});
  Load();
  const std::vector<std::string> paths = {"/v1/chat/completions",
                                          "/v1/completions",
                                          "/v1/models",
                                          "/v1/models/fake",
                                          "/tokenize",
                                          "/detokenize",
                                          "/version",
                                          "/metrics",
                                          "/V1/models",
                                          "/nowhere",
                                          "/"};
  for (const std::string& path : paths) {
    for (const char* header : {"", "Bearer", "Bearer ", "Bearer three", "Bearer one ", "one",
                               "Basic one", "Bearer one two"}) {
      const HttpResponse response = Call("GET", path, {{"authorization", header}});
      EXPECT_EQ(response.status, 401) << path << header;
      EXPECT_EQ(Header(response, "WWW-Authenticate"), "Bearer");
      EXPECT_NE(response.body.find("\"code\":\"invalid_api_key\""), std::string::npos);
    }
    for (const char* key : {"Bearer one", "bearer two"}) {
      EXPECT_NE(Call("GET", path, {{"authorization", key}}).status, 401) << path;
    }
  }
  for (const char* open : {"/health", "/ready"}) EXPECT_EQ(Call("GET", open).status, 200);
  EXPECT_EQ(Call("OPTIONS", "/v1/models").status, 204);
  Make({.api_keys = {"one"}, .metrics_open = true});
  EXPECT_EQ(Call("GET", "/metrics").status, 200);
}

// Field case 55: the shape and status of what routing refuses.
TEST_F(RoutesTest, UnknownPathsAndMethods) {
  Make({});
  Load();
  EXPECT_EQ(Call("GET", "/nowhere").status, 404);
  EXPECT_EQ(Call("GET", "/v1/modelsx").status, 404);
  const HttpResponse method = Call("GET", "/v1/chat/completions");
  EXPECT_EQ(method.status, 405);
  EXPECT_EQ(Header(method, "Allow"), "POST, OPTIONS");
  EXPECT_EQ(Header(Call("DELETE", "/v1/models"), "Allow"), "GET, HEAD, OPTIONS");
  EXPECT_EQ(Call("HEAD", "/health").status, 200);
  for (const HttpResponse& response : {method, Call("GET", "/nowhere")}) {
    EXPECT_EQ(response.body.find("{\"error\":{\"message\":"), 0u);
    EXPECT_EQ(response.content_type, "application/json");
  }
}

// Field case 47.
TEST_F(RoutesTest, ModelNamesWithSlashesAndTheRootPath) {
  Make({.served_names = {"org/name", "alias"}, .root_path = "/llm"});
  Load();
  EXPECT_EQ(Call("GET", "/v1/models/org/name").status, 200);
  EXPECT_EQ(Call("GET", "/llm/v1/models/alias").status, 200);
  EXPECT_EQ(Call("GET", "/llmv1/models").status, 404);
  const HttpResponse unknown = Call("GET", "/v1/models/other");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_NE(unknown.body.find("\"code\":\"model_not_found\""), std::string::npos);
  EXPECT_NE(unknown.body.find("`org/name`, `alias`"), std::string::npos);
  const HttpResponse list = Call("GET", "/v1/models");
  EXPECT_NE(list.body.find(R"({"id":"alias","object":"model","created":1700000000)"),
            std::string::npos);
  const HttpResponse chat = Call("POST", "/v1/chat/completions", {},
                                 R"({"model":"x","messages":[{"role":"user","content":"a"}]})");
  EXPECT_EQ(chat.status, 404);
}

// Field case 46.
TEST_F(RoutesTest, Cors) {
  const HttpHeaders preflight = {{"origin", "http://app"},
                                 {"access-control-request-method", "POST"},
                                 {"access-control-request-headers", "authorization,content-type"}};
  Make({});
  EXPECT_EQ(Header(Call("OPTIONS", "/v1/models", preflight), "Access-Control-Allow-Origin"), "");
  Make({.api_keys = {"k"}, .cors = {.origins = {"http://app"}}});
  const HttpResponse answer = Call("OPTIONS", "/v1/models", preflight);
  EXPECT_EQ(answer.status, 204);
  EXPECT_EQ(Header(answer, "Access-Control-Allow-Origin"), "http://app");
  EXPECT_EQ(Header(answer, "Access-Control-Allow-Headers"), "authorization,content-type");
  EXPECT_EQ(
      Header(Call("GET", "/v1/models", {{"origin", "http://app"}}), "Access-Control-Allow-Origin"),
      "http://app")
      << "errors carry it too";
  EXPECT_EQ(Header(Call("OPTIONS", "/v1/models", {{"origin", "http://evil"}}),
                   "Access-Control-Allow-Origin"),
            "");
}

// Field cases 57 and 69: liveness and readiness. Nobody has to ask for /health to notice the loss.
TEST_F(RoutesTest, ReadyFollowsModelWorkersAndDrain) {
  pool_.is_ready = false;
  Make({});
  EXPECT_EQ(Call("GET", "/health").status, 200) << "alive while loading";
  EXPECT_EQ(Call("GET", "/ready").status, 503);
  EXPECT_EQ(Call("GET", "/v1/models").status, 503);
  Load();
  EXPECT_EQ(Call("GET", "/ready").status, 503);
  EXPECT_EQ(Call("GET", "/health").status, 200) << "no worker was ready yet";
  pool_.is_ready = pool_.has_been_ready = true;
  EXPECT_EQ(Call("GET", "/ready").status, 200);
  EXPECT_EQ(Call("GET", "/health").status, 200);
  pool_.is_ready = false;
  EXPECT_EQ(Call("GET", "/ready").status, 503);
  const HttpResponse lost = Call("GET", "/health");
  EXPECT_EQ(lost.status, 503) << "all workers are gone";
  EXPECT_NE(lost.body.find("one: gone"), std::string::npos);
  server_->BeginDrain();
  EXPECT_EQ(Call("GET", "/health").status, 200) << "shutting down is no fault";
  EXPECT_EQ(Call("GET", "/ready").status, 503);
  const HttpResponse refused = Call("POST", "/v1/chat/completions", {}, "{}");
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(Header(refused, "Retry-After"), "");
  EXPECT_EQ(Header(refused, "connection"), "close");
}

// Field case 49.
TEST_F(RoutesTest, ContentTypes) {
  Make({});
  Load();
  const std::string body = R"({"prompt":"ab"})";
  for (const char* good :
       {"", "application/json", "APPLICATION/JSON; charset=utf-8", "application/json;charset=gbk",
        "application/x-www-form-urlencoded", "application/vnd.api+json"}) {
    EXPECT_EQ(Call("POST", "/tokenize", {{"content-type", good}}, body).status, 200) << good;
  }
  for (const char* bad : {"text/plain", "multipart/form-data; boundary=x", "image/png"}) {
    EXPECT_EQ(Call("POST", "/tokenize", {{"content-type", bad}}, body).status, 415) << bad;
  }
}

TEST_F(RoutesTest, TokenizeAndBack) {
  Make({});
  Load();
  EXPECT_EQ(Call("POST", "/tokenize", {}, R"({"prompt":"ab","return_token_strs":true})").body,
            R"({"count":2,"max_model_len":100,"tokens":[97,98],"token_strs":["a","b"]})");
  EXPECT_EQ(Call("POST", "/detokenize", {}, R"({"tokens":[97,258]})").body,
            R"({"prompt":"ahello"})");
  EXPECT_EQ(Call("POST", "/detokenize", {}, R"({"tokens":[300]})").status, 400);
}

TEST_F(RoutesTest, RequestIdIsHonouredWhenItIsClean) {
  Make({});
  EXPECT_EQ(Header(Call("GET", "/health", {{"x-request-id", "abc-1"}}), "X-Request-Id"), "abc-1");
  const std::string made =
      Header(Call("GET", "/health", {{"x-request-id", "bad id"}}), "X-Request-Id");
  EXPECT_EQ(made.size(), 16u);
}

TEST_F(RoutesTest, MetricsHaveOurNamesAndVllms) {
  Make({});
  Load();
  const std::string text = Call("GET", "/metrics").body;
  for (const char* name :
       {"penstock_router_requests_in_flight 0", "penstock_worker_ready{worker=\"one\"} 1",
        "vllm:num_requests_running{model_name=\"fake\",engine=\"0\"} 0",
        "vllm:kv_cache_usage_perc{", "vllm:time_to_first_token_seconds_bucket{",
        "vllm:request_success_total{", "vllm:cache_config_info{"}) {
    EXPECT_NE(text.find(name), std::string::npos) << name;
  }
  Make({.vllm_metrics = false});
  Load();
  EXPECT_EQ(Call("GET", "/metrics").body.find("vllm:"), std::string::npos);
}

TEST_F(RoutesTest, FullQueueIsA429WithRetryAfter) {
  Make({.admission = {.max_requests = 1}});
  Load();
  const std::string body = R"({"prompt":"ab"})";
  Call("POST", "/v1/completions", {}, body);
  const HttpResponse refused = Call("POST", "/v1/completions", {}, body);
  EXPECT_EQ(refused.status, 429);
  EXPECT_NE(Header(refused, "Retry-After"), "");
  EXPECT_NE(refused.body.find("rate_limit_error"), std::string::npos);
  server_->FailAll({.status = 503, .message = "over"});
  executor_.RunAll();
}

}  // namespace
}  // namespace penstock
