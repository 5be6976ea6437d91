// Whole generations against a pool that the test plays.

#include "router/api/generation.h"

#include "common/json/json.h"
#include "fake_text.h"
#include "fake_world.h"
#include "gtest/gtest.h"

namespace penstock {
namespace {

class GenerationTest : public testing::Test {
 protected:
  // Prepares and starts; false when the request was refused (error_ says why).
  bool Start(const std::string& body, Endpoint endpoint = Endpoint::kChat) {
    auto model = std::make_shared<LoadedModel>(LoadedModel{served_, text_});
    ApiOr<PreparedRequest> prepared = Prepare(
        {.endpoint = endpoint, .body = body, .random = 77, .model = std::move(model)}, options_);
    if (!prepared.ok()) {
      error_ = prepared.error();
      return false;
    }
    int64_t tokens = 0;
    for (const auto& p : prepared.value().prompts) {
      tokens += static_cast<int64_t>(p.ids.size()) * prepared.value().fields.n;
    }
    if (prepared.value().prompts.front().max_tokens > 0) {
      EXPECT_FALSE(admission_
                       .Enter(static_cast<int64_t>(prepared.value().prompts.size()) *
                                  prepared.value().fields.n,
                              tokens, 0)
                       .has_value());
    }
    exchange_ = std::make_shared<FakeExchange>(HttpRequest{}, executor_);
    Generation::Start({options_, pool_, metrics_, admission_, registry_}, exchange_,
                      std::move(prepared.value()), {{"X-Request-Id", "r"}},
                      [this](const GenerationSummary& summary) { summary_ = summary; });
    return true;
  }
  bool StartChat(const std::string& fields) {
    return Start(R"({"messages":[{"role":"user","content":"hi"}])" + fields + "}");
  }
  ScriptedPool::Request& request(size_t i) { return *pool_.requests[i]; }
  void AcceptAll() {
    for (const auto& r : pool_.requests) r->sink->OnAccepted();
  }
  Json Answer() { return *Json::Parse(exchange_->response.body); }
  // The JSON of every data event, [DONE] left out.
  std::vector<Json> Events() {
    std::vector<Json> events;
    std::string all = exchange_->All();
    for (size_t at = 0; at < all.size();) {
      const size_t end = all.find("\n\n", at);
      const std::string data = all.substr(at + 6, end - at - 6);
      EXPECT_EQ(all.substr(at, 6), "data: ");
      if (data != "[DONE]") events.push_back(*Json::Parse(data));
      at = end + 2;
    }
    return events;
  }
  void TearDown() override {
    executor_.RunAll();
    EXPECT_EQ(registry_.size(), 0);
    EXPECT_EQ(admission_.requests(), 0);
    EXPECT_EQ(admission_.tokens(), 0);
    for (const auto& r : pool_.requests) EXPECT_TRUE(r->cancelled) << "a handle was left";
  }

  ApiOptions options_{.version = "0"};
  std::shared_ptr<ServedModel> served_ = FakeModel();
  std::shared_ptr<FakeText> text_ = std::make_shared<FakeText>();
  ManualExecutor executor_;
  ScriptedPool pool_;
  Metrics metrics_{"0", true};
  Admission admission_{AdmissionLimits()};
  GenerationRegistry registry_;
  std::shared_ptr<FakeExchange> exchange_;
  GenerationSummary summary_;
  ApiError error_;
};

const Json& Choice(const Json& event) { return event.Find("choices")->as_array().front(); }

// Field case 4.
TEST_F(GenerationTest, StreamOrder) {
  ASSERT_TRUE(StartChat(R"(,"stream":true)"));
  EXPECT_FALSE(exchange_->started) << "the 200 waits for Accepted";
  AcceptAll();
  EXPECT_TRUE(exchange_->started);
  EXPECT_TRUE(exchange_->writes.empty()) << "nothing but comments before the first token";
  request(0).Text("ab");
  ASSERT_EQ(exchange_->writes.size(), 2u) << "one write per token";
  request(0).Step({kEndToken});
  EXPECT_EQ(exchange_->writes.size(), 2u) << "a token that prints nothing makes no event";
  request(0).Finish(GenerationEnd::kEos, {}, kEndToken);
  const std::vector<Json> events = Events();
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(Choice(events[0]).Find("delta")->Dump(), R"({"role":"assistant","content":""})");
  EXPECT_EQ(Choice(events[1]).Find("delta")->Dump(), R"({"content":"a"})");
  EXPECT_EQ(Choice(events[2]).Find("delta")->Dump(), R"({"content":"b"})");
  EXPECT_EQ(Choice(events[3]).Find("delta")->Dump(), "{}");
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Choice(events[i]).Find("finish_reason")->is_null());
  EXPECT_EQ(Choice(events[3]).Find("finish_reason")->as_string(), "stop");
  for (const Json& event : events) EXPECT_EQ(event.Find("usage"), nullptr);
  EXPECT_TRUE(exchange_->All().ends_with("data: [DONE]\n\n"));
  EXPECT_TRUE(exchange_->ended);
  EXPECT_EQ(summary_.completion_tokens, 3);
}

TEST_F(GenerationTest, WholeAnswer) {
  ASSERT_TRUE(StartChat(R"(,"max_tokens":2)"));
  EXPECT_EQ(request(0).request.max_tokens, 2);
  AcceptAll();
  request(0).Text("ok");
  request(0).Finish(GenerationEnd::kLength);
  const Json answer = Answer();
  EXPECT_EQ(exchange_->response.status, 200);
  EXPECT_EQ(Choice(answer).Find("message")->Find("content")->as_string(), "ok");
  EXPECT_EQ(Choice(answer).Find("finish_reason")->as_string(), "length");
  EXPECT_EQ(answer.Find("usage")->Dump(),
            R"({"prompt_tokens":9,"completion_tokens":2,"total_tokens":11,)"
            R"("prompt_tokens_details":{"cached_tokens":3}})");
  EXPECT_EQ(answer.Find("system_fingerprint")->as_string(), "penstock-0-01234567");
  EXPECT_EQ(exchange_->response.headers.front().second, "r");
}

// Field case 1.
TEST_F(GenerationTest, UsageEventOnlyOnDemand) {
  ASSERT_TRUE(StartChat(R"(,"stream":true,"stream_options":{"include_usage":true})"));
  AcceptAll();
  request(0).Text("a");
  request(0).Finish(GenerationEnd::kEos);
  const std::vector<Json> events = Events();
  for (size_t i = 0; i + 1 < events.size(); ++i) EXPECT_TRUE(events[i].Find("usage")->is_null());
  EXPECT_TRUE(events.back().Find("choices")->as_array().empty());
  EXPECT_EQ(events.back().Find("usage")->Find("total_tokens")->ToInt64(), 10);
}

// Field case 14.
TEST_F(GenerationTest, ChoicesAreSubmittedAloneAndAnsweredTogether) {
  ASSERT_TRUE(StartChat(R"(,"n":3,"seed":7)"));
  ASSERT_EQ(pool_.requests.size(), 3u);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(request(i).request.seed, 7u);
    EXPECT_EQ(request(i).request.choice, i);
    EXPECT_EQ(request(i).request.group_id, request(0).request.group_id);
  }
  AcceptAll();
  for (const int i : {2, 0, 1}) {
    request(i).Text(std::string(1, static_cast<char>('a' + i)));
    request(i).Finish(GenerationEnd::kEos);
  }
  const Json answer = Answer();
  for (int i = 0; i < 3; ++i) {
    const Json& choice = answer.Find("choices")->as_array()[i];
    EXPECT_EQ(choice.Find("index")->ToInt64(), i);
    EXPECT_EQ(choice.Find("message")->Find("content")->as_string(),
              std::string(1, static_cast<char>('a' + i)));
  }
  EXPECT_EQ(answer.Find("usage")->Find("prompt_tokens")->ToInt64(), 9) << "counted once";
  EXPECT_EQ(answer.Find("usage")->Find("completion_tokens")->ToInt64(), 3);
}

TEST_F(GenerationTest, SeveralPrompts) {
  ASSERT_TRUE(Start(R"({"prompt":["ab",[99]],"echo":true,"return_token_ids":true})",
                    Endpoint::kCompletions));
  ASSERT_EQ(pool_.requests.size(), 2u);
  EXPECT_NE(request(0).request.group_id, request(1).request.group_id);
  AcceptAll();
  request(1).Text("2");
  request(1).Finish(GenerationEnd::kEos);
  request(0).Text("1");
  request(0).Finish(GenerationEnd::kEos);
  const Json answer = Answer();
  const auto& choices = answer.Find("choices")->as_array();
  EXPECT_EQ(choices[0].Find("text")->as_string(), "ab1");
  EXPECT_EQ(choices[1].Find("text")->as_string(), "c2");
  EXPECT_EQ(choices[1].Find("prompt_token_ids")->Dump(), "[99]");
  EXPECT_EQ(choices[1].Find("token_ids")->Dump(), "[50]");
  EXPECT_EQ(answer.Find("usage")->Find("prompt_tokens")->ToInt64(), 3);
}

// Field case 13: echo with nothing to generate needs no worker.
TEST_F(GenerationTest, EchoOnly) {
  ASSERT_TRUE(Start(R"({"prompt":"abc","echo":true,"max_tokens":0})", Endpoint::kCompletions));
  EXPECT_TRUE(pool_.requests.empty());
  EXPECT_EQ(Choice(Answer()).Find("text")->as_string(), "abc");
  EXPECT_EQ(Choice(Answer()).Find("finish_reason")->as_string(), "length");
}

// Field case 6.
TEST_F(GenerationTest, ErrorBeforeTheStreamIsAStatus) {
  ASSERT_TRUE(StartChat(R"(,"stream":true)"));
  request(0).Finish(GenerationEnd::kError, absl::InvalidArgumentError("top_k: bad"), -1, "top_k");
  EXPECT_EQ(exchange_->response.status, 400);
  EXPECT_EQ(Answer().Find("error")->Find("param")->as_string(), "top_k");
}

TEST_F(GenerationTest, ErrorInMidStreamIsAnEventThenDone) {
  ASSERT_TRUE(StartChat(R"(,"stream":true)"));
  AcceptAll();
  request(0).Text("ab");
  request(0).Finish(GenerationEnd::kError, absl::InternalError("fault"));
  const std::vector<Json> events = Events();
  const Json* error = events.back().Find("error");
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->Find("type")->as_string(), "server_error");
  EXPECT_TRUE(exchange_->All().ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(summary_.finish, "error");
}

TEST_F(GenerationTest, StatusOfEveryKindOfFailure) {
  const std::vector<std::pair<absl::Status, int>> table = {{absl::ResourceExhaustedError("x"), 429},
                                                           {absl::UnavailableError("x"), 503},
                                                           {absl::DeadlineExceededError("x"), 504},
                                                           {absl::InternalError("x"), 500},
                                                           {absl::UnimplementedError("x"), 400}};
  for (const auto& [status, expected] : table) {
    ASSERT_TRUE(StartChat(""));
    pool_.requests.back()->Finish(GenerationEnd::kError, status);
    EXPECT_EQ(exchange_->response.status, expected);
    const bool retry = expected == 429 || expected == 503;
    const bool has =
        std::any_of(exchange_->response.headers.begin(), exchange_->response.headers.end(),
                    [](const auto& h) { return h.first == "Retry-After"; });
    EXPECT_EQ(has, retry) << expected;
    executor_.RunAll();
  }
}

// Field case 3: all choices are cancelled.
TEST_F(GenerationTest, ClientGoneCancelsEveryChoice) {
  for (const char* fields : {R"(,"n":2)", R"(,"n":2,"stream":true)"}) {
    ASSERT_TRUE(StartChat(fields));
    const size_t first = pool_.requests.size() - 2;
    request(first).sink->OnAccepted();
    request(first).Text("a");
    exchange_->Leave();
    EXPECT_TRUE(request(first).cancelled);
    EXPECT_TRUE(request(first + 1).cancelled);
    EXPECT_EQ(summary_.finish, "abort");
    executor_.RunAll();
  }
}

// Field case 8: the work ends at the match, and what the worker ran past it does not count.
TEST_F(GenerationTest, StopStringCancelsTheWork) {
  ASSERT_TRUE(StartChat(R"(,"stop":["DEFG"],"logprobs":true)"));
  AcceptAll();
  request(0).sink->OnStarted({.cached_tokens = 2});
  request(0).Step({'A', 'B', 'D', 'E', 'F', 'G', 'X', 'Y'});
  EXPECT_TRUE(request(0).cancelled);
  const Json answer = Answer();
  EXPECT_EQ(Choice(answer).Find("message")->Find("content")->as_string(), "AB");
  EXPECT_EQ(Choice(answer).Find("stop_reason")->as_string(), "DEFG");
  EXPECT_EQ(Choice(answer).Find("logprobs")->Find("content")->as_array().size(), 6u);
  EXPECT_EQ(answer.Find("usage")->Find("completion_tokens")->ToInt64(), 6);
  EXPECT_EQ(answer.Find("usage")->Find("prompt_tokens_details")->Dump(), R"({"cached_tokens":2})");
}

// The worker that resumes a stream finds other blocks cached.
TEST_F(GenerationTest, CachedTokensAreThoseOfTheFirstStart) {
  ASSERT_TRUE(StartChat(""));
  AcceptAll();
  request(0).sink->OnStarted({.cached_tokens = 5});
  request(0).Text("a");
  request(0).sink->OnStarted({.cached_tokens = 0});
  request(0).Text("b");
  request(0).Finish(GenerationEnd::kEos);
  EXPECT_EQ(Answer().Find("usage")->Find("prompt_tokens_details")->Dump(),
            R"({"cached_tokens":5})");
}

TEST_F(GenerationTest, SingleTokenStopsGoDownAsIds) {
  ASSERT_TRUE(StartChat(R"(,"stop":["hello","DEFG"])"));
  EXPECT_EQ(request(0).request.stop_token_ids, std::vector<int32_t>{kHelloToken});
  AcceptAll();
  request(0).Step({'a', kHelloToken});
  EXPECT_EQ(Choice(Answer()).Find("stop_reason")->as_string(), "hello");
  ASSERT_TRUE(StartChat(R"(,"stop":["hello"],"min_tokens":3)"));
  EXPECT_TRUE(request(1).request.stop_token_ids.empty()) << "the worker would mask it";
  exchange_->Leave();
}

TEST_F(GenerationTest, StreamedLogprobsAndIds) {
  ASSERT_TRUE(
      StartChat(R"(,"stream":true,"logprobs":true,"top_logprobs":1,"return_token_ids":true)"));
  EXPECT_EQ(request(0).request.top_logprobs, 1);
  AcceptAll();
  request(0).sink->OnLogprobs({.index = 0, .rank = 1, .top = {{'a', -0.5f}}});
  request(0).Text("a");
  request(0).sink->OnLogprobs({.index = 1, .rank = 1, .top = {{kEndToken, -0.25f}}});
  request(0).Step({kEndToken});
  request(0).Finish(GenerationEnd::kEos, {}, kEndToken);
  const std::vector<Json> events = Events();
  ASSERT_EQ(events.size(), 4u) << "the hidden token has an event, since its logprob was asked for";
  EXPECT_EQ(events[0].Find("prompt_token_ids")->as_array().size(), 9u);
  EXPECT_EQ(Choice(events[1]).Find("logprobs")->Find("content")->as_array().size(), 1u);
  EXPECT_EQ(Choice(events[2]).Find("delta")->Dump(), R"({"content":""})");
  EXPECT_EQ(Choice(events[2]).Find("token_ids")->Dump(), "[256]");
}

TEST_F(GenerationTest, SlowClientCostsOnlyItsIds) {
  ASSERT_TRUE(StartChat(R"(,"stream":true)"));
  AcceptAll();
  request(0).Text("a");
  exchange_->pending = 100'000;
  request(0).Text("b");
  ASSERT_TRUE(exchange_->drained);
  const size_t written = exchange_->writes.size();
  request(0).Text("cde");
  request(0).Finish(GenerationEnd::kLength);
  EXPECT_EQ(exchange_->writes.size(), written) << "waits unrendered";
  EXPECT_FALSE(exchange_->ended);
  exchange_->pending = 0;
  std::exchange(exchange_->drained, nullptr)();
  std::string text;
  for (const Json& event : Events()) {
    if (const Json* content = Choice(event).Find("delta")->Find("content"))
      text += content->as_string();
  }
  EXPECT_EQ(text, "abcde");
  EXPECT_TRUE(exchange_->ended);
}

TEST_F(GenerationTest, DrainEndsStreamsWithAnError) {
  ASSERT_TRUE(StartChat(R"(,"stream":true)"));
  AcceptAll();
  request(0).Text("a");
  registry_.FailAll({.status = 503, .message = "shutting down"});
  executor_.RunAll();
  EXPECT_NE(Events().back().Find("error"), nullptr);
  EXPECT_TRUE(request(0).cancelled);
}

// Field case 12, around the window of 100.
TEST_F(GenerationTest, ContextLimits) {
  const auto prompt = [](int tokens) {
    return R"({"prompt":")" + std::string(static_cast<size_t>(tokens), 'x') + "\"";
  };
  const auto granted = [&](const std::string& body) {
    if (!Start(body, Endpoint::kCompletions)) return -1;
    const int32_t max_tokens = pool_.requests.back()->request.max_tokens;
    exchange_->Leave();
    executor_.RunAll();
    return max_tokens;
  };
  EXPECT_EQ(granted(prompt(99) + "}"), 1);
  EXPECT_EQ(granted(prompt(100) + "}"), -1);
  EXPECT_EQ(error_.code, "context_length_exceeded");
  EXPECT_EQ(error_.message.find(
                "This model's maximum context length is 100 tokens. However, you requested 16 "
                "output tokens and your prompt contains 100 input tokens"),
            0u)
      << error_.message;
  EXPECT_EQ(granted(prompt(5000) + "}"), -1) << "refused before it is tokenised";
  EXPECT_EQ(error_.code, "context_length_exceeded");
  EXPECT_EQ(granted(prompt(90) + R"(,"max_tokens":10})"), 10);
  EXPECT_EQ(granted(prompt(90) + R"(,"max_tokens":11})"), 10);
  EXPECT_EQ(granted(prompt(90) + R"(,"max_tokens":9223372036854775807})"), 10);
  options_.clamp_overflow = false;
  EXPECT_EQ(granted(prompt(90) + R"(,"max_tokens":11})"), -1);
  EXPECT_EQ(granted(prompt(90) + R"(,"max_tokens":9223372036854775807})"), -1);
  EXPECT_EQ(granted(prompt(90) + R"(,"max_tokens":10})"), 10);
  EXPECT_EQ(granted(prompt(500) + R"(,"truncate_prompt_tokens":20,"max_tokens":5})"), 5);
  EXPECT_EQ(pool_.requests.back()->request.prompt_ids.size(), 20u);
}

TEST_F(GenerationTest, DefaultsOfTheModelAndOfTheServer) {
  text_->generation_defaults = {.temperature = 0.6, .top_p = 0.9, .top_k = 40, .max_new_tokens = 7};
  ASSERT_TRUE(StartChat(R"(,"top_p":0.5)"));
  const GenerationRequest first = request(0).request;
  EXPECT_FLOAT_EQ(first.temperature, 0.6f);
  EXPECT_FLOAT_EQ(first.top_p, 0.5f);
  EXPECT_EQ(first.top_k, 40);
  EXPECT_EQ(first.max_tokens, 7);
  EXPECT_EQ(first.seed, 77u) << "drawn when absent";
  exchange_->Leave();
  options_.model_defaults = false;
  ASSERT_TRUE(StartChat(""));
  EXPECT_FLOAT_EQ(request(1).request.temperature, 1);
  EXPECT_EQ(request(1).request.top_k, 0);
  EXPECT_EQ(request(1).request.max_tokens, 91) << "the rest of the context";
  exchange_->Leave();
}

TEST_F(GenerationTest, OverridesWinOverTheModelAndLoseToTheRequest) {
  text_->generation_defaults = {.temperature = 0.6, .top_k = 40, .max_new_tokens = 7};
  options_.generation_overrides = {.temperature = 0.1, .top_p = 0.8, .max_new_tokens = 5};
  for (const bool model : {true, false}) {
    options_.model_defaults = model;
    ASSERT_TRUE(StartChat(R"(,"top_p":0.5)"));
    const GenerationRequest& submit = pool_.requests.back()->request;
    EXPECT_FLOAT_EQ(submit.temperature, 0.1f);
    EXPECT_FLOAT_EQ(submit.top_p, 0.5f);
    EXPECT_EQ(submit.top_k, model ? 40 : 0);
    EXPECT_EQ(submit.max_tokens, 5);
    exchange_->Leave();
    executor_.RunAll();
  }
}

TEST_F(GenerationTest, TemplateVariablesOfTheServerThenOfTheRequest) {
  options_.chat_template_kwargs = *Json::Parse(R"({"enable_thinking":false,"a":1})");
  ASSERT_TRUE(StartChat(""));
  EXPECT_EQ(text_->last_kwargs, R"({"enable_thinking":false,"a":1})");
  exchange_->Leave();
  ASSERT_TRUE(StartChat(R"(,"chat_template_kwargs":{"a":2,"b":3})"));
  EXPECT_EQ(text_->last_kwargs, R"({"enable_thinking":false,"a":2,"b":3})");
  exchange_->Leave();
}

TEST_F(GenerationTest, ARequestsOwnTemplateNeedsTheFlag) {
  EXPECT_FALSE(StartChat(R"(,"chat_template":"T")"));
  EXPECT_EQ(error_.param, "chat_template");
  EXPECT_NE(error_.message.find("--trust-request-chat-template"), std::string::npos);
  options_.trust_request_chat_template = true;
  ASSERT_TRUE(StartChat(R"(,"chat_template":"T")"));
  EXPECT_EQ(request(0).request.prompt_ids.front(), 'T');
  exchange_->Leave();
}

// Clients retry a 429: a template that takes too long must not be one.
TEST_F(GenerationTest, ATemplateOverItsLimitsIsA400) {
  text_->chat_error = absl::ResourceExhaustedError("the template took too many steps");
  EXPECT_FALSE(StartChat(""));
  EXPECT_EQ(error_.status, 400);
  EXPECT_EQ(error_.code, "");
  EXPECT_EQ(error_.retry_after_s, 0);
}

// Field case 36.
TEST_F(GenerationTest, NoTemplateIsA400) {
  text_->has_template = false;
  EXPECT_FALSE(StartChat(""));
  EXPECT_EQ(error_.status, 400);
  EXPECT_NE(error_.message.find("--chat-template"), std::string::npos);
}

}  // namespace
}  // namespace penstock
