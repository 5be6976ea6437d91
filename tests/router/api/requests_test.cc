#include "router/api/requests.h"

#include "gtest/gtest.h"

namespace penstock {
namespace {

constexpr FieldLimits kLimits = {.vocab_size = 300, .max_choices = 64, .max_logprobs = 20};

Json Body(const std::string& text) {
  ApiOr<Json> body = ParseBody(text);
  EXPECT_TRUE(body.ok()) << text;
  return body.ok() ? body.value() : Json(Json::Object{});
}

ApiOr<ChatRequest> Chat(const std::string& fields) {
  return ParseChatRequest(Body(R"({"messages":[{"role":"user","content":"hi"}])" + fields + "}"),
                          kLimits);
}

ApiOr<CompletionRequest> Completion(const std::string& fields) {
  return ParseCompletionRequest(Body(R"({"prompt":"hi")" + fields + "}"), kLimits);
}

struct BadField_ {
  const char* field;  // what the error's param must be
  const char* fields;
};

class BadFieldTest : public testing::TestWithParam<BadField_> {};

// Field case 18 and 2b's table: each bad value is an error that names its field, on both endpoints.
TEST_P(BadFieldTest, NamesTheField) {
  const std::string fields = std::string(",") + GetParam().fields;
  const ApiOr<ChatRequest> chat = Chat(fields);
  ASSERT_FALSE(chat.ok()) << fields;
  EXPECT_EQ(chat.error().status, 400);
  EXPECT_EQ(chat.error().param, GetParam().field) << chat.error().message;
  const ApiOr<CompletionRequest> completion = Completion(fields);
  ASSERT_FALSE(completion.ok()) << fields;
  EXPECT_EQ(completion.error().param, GetParam().field) << completion.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    Table, BadFieldTest,
    testing::Values(
        BadField_{"temperature", R"("temperature":1e39)"},
        BadField_{"temperature", R"("temperature":-1)"},
        BadField_{"temperature", R"("temperature":2.1)"},
        BadField_{"temperature", R"("temperature":"0.7")"},
        BadField_{"temperature", R"("temperature":1e400)"},
        BadField_{"temperature", R"("temperature":true)"}, BadField_{"top_p", R"("top_p":-1)"},
        BadField_{"top_p", R"("top_p":1.01)"}, BadField_{"top_k", R"("top_k":-2)"},
        BadField_{"top_k", R"("top_k":1.5)"}, BadField_{"min_p", R"("min_p":2)"},
        BadField_{"repetition_penalty", R"("repetition_penalty":0)"},
        BadField_{"repetition_penalty", R"("repetition_penalty":1e400)"},
        BadField_{"presence_penalty", R"("presence_penalty":10)"},
        BadField_{"frequency_penalty", R"("frequency_penalty":-2.5)"},
        BadField_{"seed", R"("seed":100000000000000000000)"}, BadField_{"seed", R"("seed":1.5)"},
        BadField_{"seed", R"("seed":"1")"}, BadField_{"max_tokens", R"("max_tokens":1e18)"},
        BadField_{"max_tokens", R"("max_tokens":-5)"}, BadField_{"max_tokens", R"("max_tokens":0)"},
        BadField_{"n", R"("n":0)"}, BadField_{"n", R"("n":1000000)"}, BadField_{"n", R"("n":true)"},
        BadField_{"stop", R"("stop":"")"}, BadField_{"stop", R"("stop":["a",""])"},
        BadField_{"stop", R"("stop":7)"},
        BadField_{
            "stop",
            R"("stop":["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"])"},
        BadField_{"stop_token_ids", R"("stop_token_ids":["x"])"},
        BadField_{"stop_token_ids", R"("stop_token_ids":[-1])"},
        BadField_{"stop_token_ids", R"("stop_token_ids":[5,9999])"},
        BadField_{"min_tokens", R"("min_tokens":-1)"}, BadField_{"stream", R"("stream":1)"},
        BadField_{"stream_options", R"("stream_options":{"include_usage":true})"},
        BadField_{"stream_options.include_usage",
                  R"("stream":true,"stream_options":{"include_usage":1})"},
        BadField_{"logit_bias", R"("logit_bias":{"x":1})"},
        BadField_{"logit_bias", R"("logit_bias":{"300":1})"},
        BadField_{"logit_bias", R"("logit_bias":{"1":"a"})"},
        BadField_{"logit_bias", R"("logit_bias":[1])"},
        BadField_{"allowed_token_ids", R"("allowed_token_ids":[])"},
        BadField_{"allowed_token_ids", R"("allowed_token_ids":[300])"},
        BadField_{"cache_salt", R"("cache_salt":"")"},
        BadField_{"truncate_prompt_tokens", R"("truncate_prompt_tokens":0)"},
        BadField_{"truncation_side", R"("truncation_side":"up")"},
        BadField_{"ignore_eos", R"("ignore_eos":"yes")"},
        BadField_{"priority", R"("priority":0.5)"},
        BadField_{"request_id", R"("request_id":"a\r\nX-Evil: 1")"},
        // Known and not built yet.
        BadField_{"prompt_logprobs", R"("prompt_logprobs":1)"},
        BadField_{"bad_words", R"("bad_words":["x"])"},
        BadField_{"use_beam_search", R"("use_beam_search":true)"},
        BadField_{"response_format", R"("response_format":{"type":"json_object"})"},
        BadField_{"structured_outputs", R"("structured_outputs":{"regex":"a"})"},
        BadField_{"stream_interval", R"("stream_interval":5)"},
        BadField_{"thinking_token_budget", R"("thinking_token_budget":5)"}));

struct BadBody {
  const char* field;
  const char* body;
};

TEST(ChatRequestTest, MessagesAreChecked) {
  for (
      const BadBody& bad : std::vector<BadBody>{
          {"messages", R"({})"},
          {"messages", R"({"messages":null})"},
          {"messages", R"({"messages":[]})"},
          {"messages", R"({"messages":"hi"})"},
          {"messages[0]", R"({"messages":[null]})"},
          {"messages[0]", R"({"messages":[7]})"},
          {"messages[0].role", R"({"messages":[{"content":"x"}]})"},
          {"messages[0].role", R"({"messages":[{"role":"robot","content":"x"}]})"},
          {"messages[0].content", R"({"messages":[{"role":"user"}]})"},
          {"messages[0].content", R"({"messages":[{"role":"user","content":null}]})"},
          {"messages[1].content",
           R"({"messages":[{"role":"user","content":"a"},{"role":"user","content":1}]})"},
          {"messages[0].content[0]",
           R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})"},
          {"messages[0].content[0]",
           R"({"messages":[{"role":"user","content":[{"type":"x","text":"a"}]}]})"},
          {"messages[0].content[0]",
           R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]})"},
          {"messages[0].tool_calls", R"({"messages":[{"role":"assistant","tool_calls":7}]})"},
          {"messages[0].tool_calls[0]",
           R"({"messages":[{"role":"assistant","tool_calls":[{}]}]})"}}) {
    const ApiOr<ChatRequest> chat = ParseChatRequest(Body(bad.body), kLimits);
    ASSERT_FALSE(chat.ok()) << bad.body;
    EXPECT_EQ(chat.error().param, bad.field) << chat.error().message;
  }
}

// Field cases 24 and 30.
TEST(ChatRequestTest, MessagesAreNormalised) {
  const ApiOr<ChatRequest> chat =
      ParseChatRequest(Body(R"({"messages":[{"role":"user","content":[{"type":"text","text":"A"}]},
               {"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function",
                "function":{"name":"f","arguments":"{}"}}]},
               {"role":"tool","tool_call_id":"c"},
               {"role":"assistant","content":[{"type":"refusal","refusal":"no"}],"tool_calls":[],"name":null}]})"),
                       kLimits);
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  EXPECT_EQ(chat.value().input.messages.Dump(),
            R"([{"role":"user","content":[{"type":"text","text":"A"}]},)"
            R"({"role":"assistant","content":"","tool_calls":[{"id":"c","type":"function",)"
            R"("function":{"name":"f","arguments":"{}"}}]},)"
            R"({"role":"tool","tool_call_id":"c","content":""},)"
            R"({"role":"assistant","content":[{"type":"text","text":"no"}]}])");
}

TEST(ChatRequestTest, ChatOnlyFields) {
  for (const BadBody& bad :
       std::vector<BadBody>{{"max_completion_tokens", R"(,"max_completion_tokens":0)"},
                            {"max_tokens", R"(,"max_completion_tokens":5,"max_tokens":0)"},
                            {"logprobs", R"(,"logprobs":5)"},
                            {"top_logprobs", R"(,"top_logprobs":2)"},
                            {"top_logprobs", R"(,"logprobs":true,"top_logprobs":21)"},
                            {"top_logprobs", R"(,"logprobs":true,"top_logprobs":-2)"},
                            {"top_logprobs", R"(,"logprobs":true,"top_logprobs":-1)"},
                            {"tools", R"(,"tools":[{"type":"function","function":{"name":"f"}}])"},
                            {"tools", R"(,"tools":{})"},
                            {"tool_choice", R"(,"tool_choice":"required")"},
                            {"chat_template", R"(,"chat_template":"x")"},
                            {"reasoning_effort", R"(,"reasoning_effort":"huge")"},
                            {"chat_template_kwargs", R"(,"chat_template_kwargs":[])"},
                            {"functions", R"(,"functions":[{}])"},
                            {"continue_final_message",
                             R"(,"continue_final_message":true,"add_generation_prompt":true)"}}) {
    const ApiOr<ChatRequest> chat = Chat(bad.body);
    ASSERT_FALSE(chat.ok()) << bad.body;
    EXPECT_EQ(chat.error().param, bad.field) << chat.error().message;
  }
}

// Field case 11: both names, the newer one wins.
TEST(ChatRequestTest, TheNewerNameOfTheCapWins) {
  EXPECT_EQ(Chat(R"(,"max_tokens":50,"max_completion_tokens":5)").value().fields.max_tokens, 5);
  EXPECT_EQ(Chat(R"(,"max_tokens":50)").value().fields.max_tokens, 50);
  EXPECT_FALSE(Chat("").value().fields.max_tokens.has_value());
  EXPECT_EQ(Completion("").value().fields.max_tokens, 16);
}

TEST(ChatRequestTest, TemplateVariables) {
  const RequestedChat input =
      Chat(
          R"(,"reasoning_effort":"none","chat_template_kwargs":{"a":1},"documents":[{"t":"x"}],"continue_final_message":true)")
          .value()
          .input;
  EXPECT_EQ(input.kwargs.Dump(), R"({"reasoning_effort":"none","enable_thinking":false,"a":1})");
  EXPECT_EQ(input.documents.Dump(), R"([{"t":"x"}])");
  EXPECT_TRUE(input.continue_final_message);
  EXPECT_FALSE(input.add_generation_prompt);
}

// Field case 50: null is absent, unknown fields are ignored, what asks for nothing passes.
TEST(ChatRequestTest, NullUnknownAndNeutralFieldsPass) {
  EXPECT_TRUE(
      Chat(R"(,"temperature":null,"stop":null,"stream_options":null,"tools":null,"tool_choice":null,
                     "response_format":null,"logit_bias":null,"seed":null,"n":null,"prompt_logprobs":null,
                     "max_tokens":null,"logprobs":null,"top_logprobs":null,"stream":null,"user":null)")
          .ok());
  EXPECT_TRUE(Chat(R"(,"foo":1,"store":true,"metadata":{"a":"b"},"user":"u","service_tier":"auto",
                     "reasoning_effort":"low","prediction":{"type":"content","content":"x"},"tools":[],
                     "tool_choice":"none","parallel_tool_calls":true,"bad_words":[],"best_of":1,
                     "use_beam_search":false,"length_penalty":1.0,"response_format":{"type":"text"},
                     "guided_json":null,"stream_interval":1,"structured_outputs":{})")
                  .ok());
}

// Field cases 18 and 20: disputed edge values.
TEST(SamplingFieldsTest, EdgeValues) {
  const SamplingFields fields =
      Chat(R"(,"top_p":0,"top_k":-1,"seed":-1,"temperature":0.001,"logit_bias":{"7":-500},"n":2)")
          .value()
          .fields;
  EXPECT_EQ(fields.top_p, 0);
  EXPECT_EQ(fields.top_k, 0);
  EXPECT_FALSE(fields.seed.has_value());
  EXPECT_EQ(fields.temperature, 0.01);
  EXPECT_EQ(fields.logit_bias.front().second, -100);
  EXPECT_EQ(Chat(R"(,"temperature":0,"n":2)").value().fields.temperature, 0);
  EXPECT_EQ(Chat(R"(,"top_k":9000000000)").value().fields.top_k, INT32_MAX);
  EXPECT_EQ(Chat(R"(,"seed":-7)").value().fields.seed, static_cast<uint64_t>(-7));
  EXPECT_EQ(Chat(R"(,"stop":["a","b","c","d","e"])").value().fields.stop.size(), 5u);
}

TEST(CompletionRequestTest, PromptForms) {
  const auto count = [](const char* prompt) {
    const auto parsed =
        ParseCompletionRequest(Body(std::string(R"({"prompt":)") + prompt + "}"), kLimits);
    return parsed.ok() ? static_cast<int>(parsed.value().prompts.size()) : -1;
  };
  EXPECT_EQ(count(R"("text")"), 1);
  EXPECT_EQ(count(R"(["a","b"])"), 2);
  EXPECT_EQ(count(R"([1,2,3])"), 1);
  EXPECT_EQ(count(R"([[1],[2,3]])"), 2);
  for (const char* bad :
       {"[]", "[[]]", "7", "{}", R"([1,"a"])", "[300]", "[-1]", "[1.5]", "null", R"([[1,"a"]])"}) {
    EXPECT_EQ(count(bad), -1) << bad;
  }
  std::string many = "[\"x\"";
  for (int i = 0; i < 1024; ++i) many += ",\"x\"";
  EXPECT_EQ(count((many + "]").c_str()), -1);
}

// Field case 13: scoring is refused until it exists; echo alone works, with 0 too.
TEST(CompletionRequestTest, EchoAndLogprobs) {
  EXPECT_EQ(Completion(R"(,"echo":true,"logprobs":1,"max_tokens":0)").error().param, "echo");
  EXPECT_EQ(Completion(R"(,"echo":true,"max_tokens":0)").value().fields.max_tokens, 0);
  EXPECT_EQ(Completion(R"(,"logprobs":true)").error().param, "logprobs");
  EXPECT_EQ(Completion(R"(,"logprobs":-1)").error().param, "logprobs");
  EXPECT_EQ(Completion(R"(,"logprobs":21)").error().param, "logprobs");
  EXPECT_TRUE(Completion(R"(,"logprobs":0)").value().fields.logprobs);
  EXPECT_EQ(Completion(R"(,"suffix":"x")").error().param, "suffix");
}

// Field cases 43 and 44.
TEST(ParseBodyTest, HostileJson) {
  std::string deep = R"({"a":)";
  deep.append(3000, '[').append(3000, ']').append("}");
  for (const std::string& bad :
       {std::string(), std::string("null"), std::string("[]"), std::string("\"x\""), deep,
        std::string(100'000, '['), std::string(R"({"a":1,"a":2})"), std::string("{\"a\":\"\xE5\"}"),
        std::string(R"({"a":"\ud800"})"), std::string(R"({"a":NaN})"), std::string("{} x"),
        std::string("\xEF\xBB\xBF{}")}) {
    const ApiOr<Json> body = ParseBody(bad);
    ASSERT_FALSE(body.ok()) << bad.substr(0, 40);
    EXPECT_EQ(body.error().status, 400);
    EXPECT_EQ(body.error().code, "invalid_json");
    EXPECT_LT(body.error().message.size(), 300u) << "must not echo the input";
  }
}

TEST(TokenizeRequestTest, TextOrChat) {
  const auto text = ParseTokenizeRequest(Body(R"({"prompt":"x"})"));
  ASSERT_TRUE(text.ok());
  EXPECT_TRUE(text.value().add_special_tokens);
  const auto chat = ParseTokenizeRequest(Body(R"({"messages":[{"role":"user","content":"x"}]})"));
  ASSERT_TRUE(chat.ok());
  EXPECT_FALSE(chat.value().add_special_tokens);
  EXPECT_EQ(ParseTokenizeRequest(Body("{}")).error().param, "prompt");
  EXPECT_EQ(ParseDetokenizeRequest(Body("{}")).error().param, "tokens");
  EXPECT_EQ(ParseDetokenizeRequest(Body(R"({"tokens":["a"]})")).error().param, "tokens");
}

}  // namespace
}  // namespace penstock
