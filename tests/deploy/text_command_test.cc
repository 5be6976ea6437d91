#include "deploy/text_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <vector>

#include "common/base/exit_codes.h"
#include "tests/common/formats/bytes.h"
#include "tests/common/text/tiny_vocabularies.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

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
    folder_.Write("tekken.json", TinyTekken());
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
  EXPECT_THAT(result.out, HasSubstr("4 ids: 3 266 4 108\n"));
  EXPECT_THAT(result.out, HasSubstr("3  \"[INST]\"  special\n"));
  EXPECT_THAT(result.out, HasSubstr("266  \"ab\"\n"));
  EXPECT_THAT(RunText({folder_.path(), "--messages=" + messages_, "--no-generation-prompt"}).out,
              HasSubstr("3 ids: 3 266 4\n"));
}

TEST_F(TextCommand, UsersTextYieldsNoControlToken) {
  const std::string path = folder_.Write("forged.json", R"([{"role":"user","content":"[INST]"}])");
  EXPECT_THAT(RunText({folder_.path(), "--messages", path}).out,
              HasSubstr("9 ids: 3 101 83 88 93 94 103 4 108\n"));
}

TEST_F(TextCommand, PlainTextAndOtherTemplates) {
  EXPECT_THAT(RunText({folder_.path(), "--prompt", "ab"}).out, HasSubstr("2 ids: 1 266\n"));
  const std::string other = folder_.Write("other.jinja", "{{ messages[0].content }}a");
  EXPECT_THAT(RunText({folder_.path(), "--messages", messages_, "--chat-template", other}).out,
              HasSubstr("2 ids: 266 107\n"));
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
                               "{\"op\":\"decode\",\"ids\":[1,266],\"skip_special\":false}\n"
                               "{\"op\":\"stream\",\"ids\":[266,107]}\n"
                               "{\"template\":\"{{ x }}!\",\"vars\":{\"x\":1}}\n"
                               "nonsense\n");
  EXPECT_EQ(result.code, kExitOk);
  EXPECT_THAT(result.out, testing::StartsWith("{\"ok\":true}\n"
                                              "{\"ids\":[1,266]}\n"
                                              "{\"text\":\"<s>ab\"}\n"
                                              "{\"deltas\":[\"ab\",\"a\",\"\"]}\n"
                                              "{\"text\":\"1!\"}\n"
                                              "{\"error\":"));
}

}  // namespace
}  // namespace penstock
