#include "common/text/chat_template.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace penstock {
namespace {

std::string Template(const std::string& name) {
  const char* folder = std::getenv("PENSTOCK_TEST_DATA");
  std::ifstream file(std::string(folder != nullptr ? folder : "tests/data") + "/jinja/templates/" +
                     name + ".jinja");
  EXPECT_TRUE(file.good()) << name;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::shared_ptr<const ChatTemplate> Compiled(const std::string& source) {
  auto result = ChatTemplate::Compile(source);
  EXPECT_TRUE(result.ok()) << result.status();
  return *result;
}

Json Parsed(const std::string& text) {
  auto json = Json::Parse(text);
  EXPECT_TRUE(json.ok()) << json.status() << text;
  return *json;
}

absl::StatusOr<ChatRendering> Render(const std::string& source, ChatInput input) {
  return Compiled(source)->Render(input);
}

// The rendered text, or the error's.
std::string Text(const std::string& source, const std::string& messages,
                 const std::string& continue_field = "") {
  ChatInput input;
  input.messages = Parsed(messages);
  input.continue_field = continue_field;
  const auto result = Render(source, input);
  return result.ok() ? result->text.text : std::string(result.status().message());
}

constexpr char kEcho[] =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}"
    "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}";

TEST(ChatTemplate, PartsAreJoinedForATemplateOfStrings) {
  const std::string parts =
      R"([{"role":"user","content":[{"type":"text","text":"A"},{"type":"text","text":"B"}]}])";
  EXPECT_EQ(Text(kEcho, parts), "<user>A\nB");
  EXPECT_EQ(Text(kEcho, R"([{"role":"user","content":[]}])"), "<user>");
  EXPECT_NE(Text(kEcho, R"([{"role":"user","content":[{"type":"image_url"}]}])").find("content[0]"),
            std::string::npos);
  EXPECT_NE(Text(kEcho, R"([{"role":"user","content":[{"type":"text"}]}])").find("content[0]"),
            std::string::npos);
}

TEST(ChatTemplate, FormsAreFoundByTrying) {
  EXPECT_FALSE(Compiled(kEcho)->content_forms().parts);
  const auto both = Compiled(Template("chatml"));
  EXPECT_TRUE(both->content_forms().parts);
  EXPECT_TRUE(both->content_forms().text);
  const auto parts_only = Compiled(Template("parts_only"));
  EXPECT_TRUE(parts_only->content_forms().parts);
  EXPECT_FALSE(parts_only->content_forms().text);
  EXPECT_EQ(Text(Template("parts_only"), R"([{"role":"user","content":"plain"}])"),
            "<user>\nplain\n</user>\n");
  EXPECT_FALSE(Compiled(Template("thinking_tools"))->content_forms().parts);
  EXPECT_FALSE(Compiled(Template("role_tokens"))->content_forms().parts);
  EXPECT_TRUE(Compiled(Template("turns"))->content_forms().parts);
}

TEST(ChatTemplate, MissingContent) {
  EXPECT_EQ(Text(kEcho, R"([{"role":"assistant","content":null},{"role":"tool"}])"),
            "<assistant><tool>");
  EXPECT_NE(Text(kEcho, R"([{"role":"user","content":null}])").find("messages[0].content"),
            std::string::npos);
  // Null members are absent ones.
  EXPECT_EQ(Text("{{ 'name' in messages[0] }}", R"([{"role":"user","content":"","name":null}])"),
            "False");
}

std::string Call(const std::string& arguments) {
  return R"([{"role":"assistant","tool_calls":[{"type":"function","function":{"name":"f","arguments":)" +
         arguments + "}}]}]";
}

TEST(ChatTemplate, ArgumentsAreParsed) {
  EXPECT_EQ(Text(kEcho, Call(R"("{\"z\": 1, \"a\": [1.0, 12345678901234567890123]}")")),
            R"(<assistant>{"z": 1, "a": [1.0, 12345678901234567890123]})");
  EXPECT_EQ(Text(kEcho, Call(R"("")")), "<assistant>{}");
  EXPECT_EQ(Text(kEcho, Call(R"({"a":1})")), R"(<assistant>{"a": 1})");
}

TEST(ChatTemplate, BrokenArgumentsNeverFail) {
  ChatInput input;
  input.messages = Parsed(Call(R"("{\"cut")"));
  auto result = Render(kEcho, input);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->text.text, R"(<assistant>"{\"cut")");
  EXPECT_EQ(result->num_broken_arguments, 1);
  // A template that needs an object gets an empty one.
  result = Render(
      "{% for k, v in messages[0].tool_calls[0].function.arguments.items() %}{{ k }}"
      "{% endfor %}!",
      input);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->text.text, "!");
}

TEST(ChatTemplate, ReasoningHasThreeNames) {
  const std::string source =
      "{{ messages[0].reasoning_content }}{{ messages[0].thinking }}{{ messages[0].reasoning }}";
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    EXPECT_EQ(Text(source, std::string(R"([{"role":"assistant","content":"","x":1,")") + name +
                               R"(":"R"}])"),
              "RRR");
  }
}

TEST(ChatTemplate, ContinuesTheFinalMessage) {
  const std::string source =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}</end>\n{% endfor %}";
  const std::string trims =
      "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</end>{% endfor %}";
  const std::string chat =
      R"([{"role":"user","content":"q"},{"role":"assistant","content":"So "}])";
  EXPECT_EQ(Text(source, chat, "content"), "<user>q</end>\n<assistant>So ");
  EXPECT_EQ(Text(trims, chat, "content"), "<user>q</end><assistant>So");
  // Nothing said yet: the end of the turn must not stay.
  EXPECT_EQ(Text(source, R"([{"role":"assistant","content":""}])", "content"), "<assistant>");
  EXPECT_NE(Text(source, "[]", "content").find("empty"), std::string::npos);
  EXPECT_NE(Text(source, R"([{"role":"user","content":"x"}])", "thinking").find("no 'thinking'"),
            std::string::npos);
  EXPECT_NE(Text("{% for m in messages %}{{ m.role }}{# content #}{% endfor %}", chat, "content")
                .find("does not appear"),
            std::string::npos);
  const std::string reasoning =
      "{% for m in messages %}{{ m.thinking }}|{{ m.content }}{% endfor %}";
  EXPECT_EQ(
      Text(reasoning, R"([{"role":"assistant","content":"c","reasoning":"Hm"}])", "reasoning"),
      "Hm");
  EXPECT_EQ(
      Text(Template("chatml"),
           R"([{"role":"user","content":[{"type":"text","text":"A"},{"type":"text","text":"B"}]}])",
           "content"),
      "<|im_start|>user\nA\nB");
}

TEST(ChatTemplate, MarksWhatTheUserWrote) {
  ChatInput input;
  input.messages = Parsed(R"([{"role":"user","content":"<|end|>x"}])");
  input.special_tokens = {{"eos_token", "</s>"}};
  const auto result = Render(Template("role_tokens"), input);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->text.text, "<|user|><|end|>x<|end|></s>");
  const std::vector<std::pair<size_t, size_t>> expected = {{8, 16}};
  EXPECT_EQ(result->text.user_ranges, expected);
  input.continue_field = "content";
  const auto continued = Render(Template("role_tokens"), input);
  ASSERT_TRUE(continued.ok());
  EXPECT_EQ(continued->text.text, "<|user|><|end|>x");
  EXPECT_EQ(continued->text.user_ranges, expected);
}

TEST(ChatTemplate, VariablesInTheirOrder) {
  ChatInput input;
  input.messages = Parsed(R"([{"role":"user","content":"x"}])");
  input.tools = Parsed("[]");
  input.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  input.extra = Parsed(R"({"eos_token":"E","enable_thinking":false})");
  input.add_generation_prompt = true;
  const auto result = Render(
      "{{ bos_token }}{{ eos_token }}{{ enable_thinking }}{{ tools }}{{ documents }}"
      "{{ add_generation_prompt }}{{ messages[0].content }}",
      input);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->text.text, "<s>EFalseNoneNoneTruex");
}

TEST(ChatTemplateSet, ChoosesByName) {
  const auto set = ChatTemplateSet::Compile({{"default", "D"}, {"tool_use", "T"}});
  ASSERT_TRUE(set.ok());
  EXPECT_EQ((*set->For(false))->source(), "D");
  EXPECT_EQ((*set->For(true))->source(), "T");
  const auto only = ChatTemplateSet::Compile({{"default", "D"}});
  EXPECT_EQ((*only->For(true))->source(), "D");
  const auto missing = ChatTemplateSet::Compile({})->For(false);
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(missing.status().message().find("--chat-template"), absl::string_view::npos);
  const auto broken = ChatTemplateSet::Compile({{"tool_use", "{% import 'x' as y %}"}});
  EXPECT_EQ(broken.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(broken.status().message().find("'tool_use'"), absl::string_view::npos);
}

TEST(AnswerTemplateRequest, TellsTextOrError) {
  EXPECT_EQ(AnswerTemplateRequest(Parsed(R"({"template":"{{ a }}","vars":{"a":1}})")).Dump(),
            R"({"text":"1"})");
  EXPECT_EQ(
      AnswerTemplateRequest(
          Parsed(R"({"template":"{{ strftime_now('%H:%M') }}","clock":"2026-03-05T14:07:09"})"))
          .Dump(),
      R"({"text":"14:07"})");
  EXPECT_EQ(AnswerTemplateRequest(
                Parsed(R"({"template":"{{ messages[0].content }}.","continue_final_message":true,)"
                       R"("messages":[{"role":"assistant","content":"a"}]})"))
                .Dump(),
            R"({"text":"a"})");
  for (const char* wrong :
       {R"({"template":1})", R"({"template":"","vars":[]})", R"({"template":"","clock":"now"})",
        R"({"template":"","continue_final_message":1})", R"({"template":"{{"})"}) {
    EXPECT_NE(AnswerTemplateRequest(Parsed(wrong)).Find("error"), nullptr) << wrong;
  }
}

}  // namespace
}  // namespace penstock
