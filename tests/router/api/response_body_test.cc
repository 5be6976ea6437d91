#include "router/api/response_body.h"

#include "fake_text.h"
#include "gtest/gtest.h"

namespace penstock {
namespace {

AnswerInfo Info(bool chat) {
  AnswerInfo info;
  info.chat = chat;
  info.id = chat ? "chatcmpl-1" : "cmpl-1";
  info.created = 1'700'000'000;
  info.model = "m";
  info.fingerprint = "fp";
  return info;
}

constexpr char kChatHead[] =
    R"(data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m",)"
    R"("system_fingerprint":"fp","choices":[)";

TokenRecord Record(int32_t id, int32_t offset, std::vector<GenerationLogprob> top) {
  TokenRecord record{.id = id, .text_offset = offset};
  record.logprobs = GenerationLogprobs{.index = 0, .rank = 1, .top = std::move(top)};
  return record;
}

TEST(ChunkWriterTest, ChatEvents) {
  const AnswerInfo info = Info(true);
  const FakeText text;
  ChunkWriter writer(info, text, 1, 0);
  std::string out;
  writer.AppendRole(nullptr, {}, &out);
  EXPECT_EQ(out, std::string(kChatHead) +
                     R"({"index":1,"delta":{"role":"assistant","content":""},"logprobs":null,)"
                     R"("finish_reason":null}]})"
                     "\n\n");
  out.clear();
  writer.AppendText("a\"\n\xC3\xA9", {}, &out);
  EXPECT_EQ(out, std::string(kChatHead) +
                     "{\"index\":1,\"delta\":{\"content\":\"a\\\"\\n\xC3\xA9\"},\"logprobs\":null,"
                     "\"finish_reason\":null}]}\n\n");
  out.clear();
  writer.AppendEnd({.finish_reason = "stop", .stop_string = "X"}, {}, &out);
  EXPECT_EQ(out, std::string(kChatHead) +
                     R"({"index":1,"delta":{},"logprobs":null,"finish_reason":"stop",)"
                     R"("stop_reason":"X"}]})"
                     "\n\n");
}

// Field case 1.
TEST(ChunkWriterTest, UsageIsNullUntilTheEnd) {
  AnswerInfo info = Info(false);
  info.include_usage = true;
  const FakeText text;
  std::string out;
  ChunkWriter(info, text, 0, 0).AppendText("a", {}, &out);
  EXPECT_TRUE(out.ends_with("\"finish_reason\":null}],\"usage\":null}\n\n")) << out;
  out.clear();
  AppendUsageEvent(info, {.prompt_tokens = 3, .completion_tokens = 2, .cached_tokens = 1}, &out);
  EXPECT_EQ(
      out, R"(data: {"id":"cmpl-1","object":"text_completion","created":1700000000,"model":"m",)"
           R"("system_fingerprint":"fp","choices":[],"usage":{"prompt_tokens":3,)"
           R"("completion_tokens":2,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":1}}})"
           "\n\n");
  info.continuous_usage = true;
  out.clear();
  ChunkWriter(info, text, 0, 0).AppendText("a", {.prompt_tokens = 3, .completion_tokens = 1}, &out);
  EXPECT_NE(out.find(R"("usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4)"),
            std::string::npos);
}

TEST(RenderAnswerTest, Completion) {
  FinishedChoice choice{.text = "hi", .end = {.finish_reason = "length"}};
  const std::string body = RenderAnswer(Info(false), {choice}, {.prompt_tokens = 1}, FakeText());
  EXPECT_EQ(body, R"({"id":"cmpl-1","object":"text_completion","created":1700000000,"model":"m",)"
                  R"("system_fingerprint":"fp","choices":[{"index":0,"text":"hi","logprobs":null,)"
                  R"("finish_reason":"length","stop_reason":null}],"usage":{"prompt_tokens":1,)"
                  R"("completion_tokens":0,"total_tokens":1,"prompt_tokens_details":null}})");
}

TEST(RenderAnswerTest, ChatWithIds) {
  AnswerInfo info = Info(true);
  info.return_token_ids = true;
  const std::vector<int32_t> prompt = {7, 8};
  FinishedChoice choice{.text = "h", .records = {{.id = 'h'}}, .end = {.stop_id = 5}};
  choice.prompt_ids = &prompt;
  const std::string body = RenderAnswer(info, {choice}, {}, FakeText());
  EXPECT_NE(body.find(R"("message":{"role":"assistant","content":"h","refusal":null})"),
            std::string::npos);
  EXPECT_NE(body.find(R"("stop_reason":5,"token_ids":[104]}],"prompt_token_ids":[7,8],"usage")"),
            std::string::npos)
      << body;
}

// Field cases 15 and 17: finite numbers only, bytes and partial characters.
TEST(LogprobsTest, ChatShape) {
  std::string out;
  AppendChatLogprobs({Record(0xC3, 0, {{0xC3, -0.5f}, {'a', -1.5f}, {'b', -INFINITY}})}, FakeText(),
                     {.top = 3}, &out);
  EXPECT_EQ(out,
            "{\"content\":[{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-0.5,\"bytes\":[195],"
            "\"top_logprobs\":[{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-0.5,\"bytes\":[195]},"
            "{\"token\":\"a\",\"logprob\":-1.5,\"bytes\":[97]},"
            "{\"token\":\"b\",\"logprob\":-9999,\"bytes\":[98]}]}]}");
}

TEST(LogprobsTest, NotANumberNeverGetsOut) {
  std::string out;
  AppendChatLogprobs({Record('a', 0, {{'a', NAN}})}, FakeText(), {}, &out);
  EXPECT_NE(out.find("\"logprob\":-9999"), std::string::npos);
}

TEST(LogprobsTest, TheSampledTokenIsNotShownTwice) {
  // The worker sends it first, and again in its place among the best.
  std::string out;
  AppendChatLogprobs({Record('b', 0, {{'b', -2}, {'a', -1}, {'b', -2}})}, FakeText(), {.top = 2},
                     &out);
  EXPECT_NE(out.find(R"("top_logprobs":[{"token":"a","logprob":-1,"bytes":[97]},)"
                     R"({"token":"b","logprob":-2,"bytes":[98]}]})"),
            std::string::npos)
      << out;
}

TEST(LogprobsTest, CompletionShape) {
  std::string out;
  AppendCompletionLogprobs(
      {Record('h', 0, {{'h', -0.25f}, {'x', -2}}), Record('i', 1, {{'i', -1}, {'a', -0.5f}})},
      FakeText(), {.top = 1}, 10, &out);
  EXPECT_EQ(out, R"({"text_offset":[10,11],"token_logprobs":[-0.25,-1],"tokens":["h","i"],)"
                 R"("top_logprobs":[{"h":-0.25},{"a":-0.5,"i":-1}]})");
  out.clear();
  AppendCompletionLogprobs({Record('h', 0, {{'h', -0.25f}})}, FakeText(), {.tokens_as_ids = true},
                           0, &out);
  EXPECT_EQ(out, R"({"text_offset":[0],"token_logprobs":[-0.25],"tokens":["token_id:104"],)"
                 R"("top_logprobs":[{"token_id:104":-0.25}]})");
}

}  // namespace
}  // namespace penstock
