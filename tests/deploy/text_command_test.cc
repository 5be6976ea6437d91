#include "deploy/text_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <vector>

#include "common/base/exit_codes.h"
#include "tests/common/formats/bytes.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

// Ids: a 10, b 11, ab 12, then [ I N S T ]; the specials of tekken before them ([INST] 3, [/INST]
// 4).
constexpr std::string_view kTekken =
    R"({"config":{"pattern":"[a-z]+|.","default_vocab_size":19,"default_num_special_tokens":10},"vocab":[)"
    R"({"rank":0,"token_bytes":"YQ=="},{"rank":1,"token_bytes":"Yg=="},{"rank":2,"token_bytes":"YWI="},)"
    R"({"rank":3,"token_bytes":"Ww=="},{"rank":4,"token_bytes":"SQ=="},{"rank":5,"token_bytes":"Tg=="},)"
    R"({"rank":6,"token_bytes":"Uw=="},{"rank":7,"token_bytes":"VA=="},{"rank":8,"token_bytes":"XQ=="}]})";

struct Result {
  int code = 0;
  std::string out, err;
};

Result RunText(std::vector<std::string> arguments, const std::string& input = "") {
  std::istringstream in(input);
  std::ostringstream out, err;
  Result result;
  result.code = RunTextCommand(arguments, in, out, err);
  result.out = out.str();
  result.err = err.str();
  return result;
}

class TextCommand : public ::testing::Test {
 protected:
  TextCommand() {
    folder_.Write("tekken.json", kTekken);
    folder_.Write("chat_template.jinja",
                  "{% for m in messages %}[INST]{{ m.content }}[/INST]{% endfor %}"
                  "{% if tools %}{{ tools | length }}{% endif %}"
                  "{% if add_generation_prompt %}b{% endif %}");
    messages_ = folder_.Write("messages.json", R"([{"role":"user","content":"ab"}])");
  }
  TempFolder folder_;
  std::string messages_;
};

TEST_F(TextCommand, ShowsTextIdsAndPieces) {
  const Result result = RunText({folder_.path(), "--messages", messages_});
  EXPECT_EQ(result.code, kExitOk) << result.err;
  EXPECT_THAT(result.out, HasSubstr("[INST]ab[/INST]b\n"));
  EXPECT_THAT(result.out, HasSubstr("4 ids: 3 12 4 11\n"));
  EXPECT_THAT(result.out, HasSubstr("3  \"[INST]\"  special\n"));
  EXPECT_THAT(result.out, HasSubstr("12  \"ab\"\n"));
  EXPECT_THAT(RunText({folder_.path(), "--messages=" + messages_, "--no-generation-prompt"}).out,
              HasSubstr("3 ids: 3 12 4\n"));
}

TEST_F(TextCommand, UsersTextYieldsNoControlToken) {
  const std::string path = folder_.Write("forged.json", R"([{"role":"user","content":"[INST]"}])");
  EXPECT_THAT(RunText({folder_.path(), "--messages", path}).out,
              HasSubstr("9 ids: 3 13 14 15 16 17 18 4 11\n"));
}

TEST_F(TextCommand, PlainTextAndOtherTemplates) {
  EXPECT_THAT(RunText({folder_.path(), "--prompt", "ab"}).out, HasSubstr("2 ids: 1 12\n"));
  const std::string other = folder_.Write("other.jinja", "{{ messages[0].content }}a");
  EXPECT_THAT(RunText({folder_.path(), "--messages", messages_, "--chat-template", other}).out,
              HasSubstr("2 ids: 12 10\n"));
}

TEST_F(TextCommand, ErrorsSayWhatIsWrong) {
  EXPECT_EQ(RunText({}).code, kExitUsage);
  EXPECT_EQ(RunText({folder_.path()}).code, kExitUsage);
  EXPECT_THAT(RunText({folder_.path(), "--mesages", "x"}).err, HasSubstr("--mesages"));
  EXPECT_THAT(RunText({folder_.path(), "--messages"}).err, HasSubstr("needs a value"));
  const Result absent = RunText({folder_.path() + "/none", "--messages", messages_});
  EXPECT_EQ(absent.code, kExitModel);
  EXPECT_THAT(absent.err, HasSubstr("/none"));
  const std::string wrong = folder_.Write("wrong.json", "{");
  EXPECT_THAT(RunText({folder_.path(), "--messages", wrong}).err, HasSubstr("wrong.json"));
  const std::string number = folder_.Write("number.json", "3");
  EXPECT_THAT(RunText({folder_.path(), "--messages", number}).err, HasSubstr("array of messages"));
}

TEST_F(TextCommand, JsonlIsAFilter) {
  const Result result =
      RunText({"--jsonl"}, "{\"op\":\"load\",\"path\":\"" + folder_.path() +
                               "/tekken.json\"}\n"
                               "{\"op\":\"encode\",\"text\":\"ab\",\"add_special\":true}\n"
                               "{\"op\":\"decode\",\"ids\":[1,12],\"skip_special\":false}\n"
                               "{\"op\":\"stream\",\"ids\":[12,10]}\n"
                               "{\"template\":\"{{ x }}!\",\"vars\":{\"x\":1}}\n"
                               "nonsense\n");
  EXPECT_EQ(result.code, kExitOk);
  EXPECT_THAT(result.out, testing::StartsWith("{\"ok\":true}\n"
                                              "{\"ids\":[1,12]}\n"
                                              "{\"text\":\"<s>ab\"}\n"
                                              "{\"deltas\":[\"ab\",\"a\",\"\"]}\n"
                                              "{\"text\":\"1!\"}\n"
                                              "{\"error\":"));
}

}  // namespace
}  // namespace penstock
