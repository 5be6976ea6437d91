#include "router/api/choice_output.h"

#include "fake_text.h"
#include "gtest/gtest.h"

namespace penstock {
namespace {

struct Said {
  std::vector<std::string> deltas;  // what each token showed, then the rest
  std::string text;
  ChoiceEnd end;
  int32_t tokens = 0;
  std::vector<TokenRecord> records;
};

Said Speak(const std::vector<int32_t>& ids, ChoiceOutput::Options options,
           GenerationFinish finish = {}) {
  ChoiceOutput output(std::make_shared<FakeText>(), std::move(options));
  Said said;
  int32_t index = 0;
  for (const int32_t id : ids) {
    said.deltas.push_back(output.Push(id, index++, std::nullopt));
  }
  said.deltas.push_back(output.Finish(finish));
  for (const std::string& delta : said.deltas) said.text += delta;
  said.end = *output.end();
  said.tokens = output.completion_tokens();
  said.records = output.TakeRecords();
  return said;
}

std::vector<int32_t> Bytes(std::string_view text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

GenerationFinish Ended(GenerationEnd reason, int32_t stop_id = -1) {
  GenerationFinish finish;
  finish.reason = reason;
  finish.stop_id = stop_id;
  return finish;
}

// Field case 2.
TEST(ChoiceOutputTest, SplitCharacterIsHeldAndFlushed) {
  const Said whole = Speak(Bytes("\xF0\x9F\x98\x8A ok"), {});
  EXPECT_EQ(whole.text, "\xF0\x9F\x98\x8A ok");
  EXPECT_EQ(whole.deltas[2], "");
  const Said cut = Speak(Bytes("a\xF0\x9F"), {}, Ended(GenerationEnd::kLength));
  EXPECT_EQ(cut.text, "a\xEF\xBF\xBD");
  EXPECT_STREQ(cut.end.finish_reason, "length");
}

// Field case 8.
TEST(ChoiceOutputTest, StopSpanningTokensNeverLeaks) {
  const Said said = Speak(Bytes("ABCDEFGHIJ!more"), {.stops = {"DEFGHIJ"}, .keep_records = true},
                          Ended(GenerationEnd::kLength));
  EXPECT_EQ(said.text, "ABC");
  EXPECT_EQ(said.tokens, 10) << "counted up to the matching token";
  EXPECT_EQ(said.records.size(), 10u);
  EXPECT_STREQ(said.end.finish_reason, "stop");
  EXPECT_EQ(said.end.stop_string, "DEFGHIJ");
}

TEST(ChoiceOutputTest, StopThatNeverCompletesIsShownInTheEnd) {
  const Said said = Speak(Bytes("ABCDEF"), {.stops = {"DEFX"}}, Ended(GenerationEnd::kLength));
  EXPECT_EQ(said.text, "ABCDEF");
  EXPECT_EQ(said.deltas[2], "C") << "held back no longer than needed";
  EXPECT_STREQ(said.end.finish_reason, "length");
}

TEST(ChoiceOutputTest, EarlierMatchWinsOverEarlierListed) {
  const Said said = Speak(Bytes("one two three"), {.stops = {"three", "two"}});
  EXPECT_EQ(said.text, "one ");
  EXPECT_EQ(said.end.stop_string, "two");
}

TEST(ChoiceOutputTest, StopIsShownOnDemand) {
  const Said said = Speak(Bytes("one two"), {.stops = {"two"}, .include_stop = true});
  EXPECT_EQ(said.text, "one two");
}

TEST(ChoiceOutputTest, StopDoesNotCountBeforeMinTokens) {
  const Said said = Speak(Bytes("aXbXc"), {.stops = {"X"}, .min_tokens = 2});
  EXPECT_EQ(said.text, "aXb");
}

// Field case 9: hidden special tokens match, and are not shown.
TEST(ChoiceOutputTest, SpecialTokenAsStopString) {
  const Said said = Speak({'h', 'i', kUserToken, 'x'}, {.stops = {"<|user|>"}});
  EXPECT_EQ(said.text, "hi");
  EXPECT_EQ(said.tokens, 3);
  EXPECT_EQ(said.end.stop_string, "<|user|>");
}

// Field cases 4 and 64: EOS counts and prints nothing, whatever skip_special_tokens says.
TEST(ChoiceOutputTest, EosCountsAndPrintsNothing) {
  for (const bool skip : {true, false}) {
    const Said said = Speak({'h', 'i', kEndToken}, {.eos_ids = {kEndToken}, .skip_special = skip},
                            Ended(GenerationEnd::kEos, kEndToken));
    EXPECT_EQ(said.text, "hi");
    EXPECT_EQ(said.tokens, 3);
    EXPECT_STREQ(said.end.finish_reason, "stop");
    EXPECT_FALSE(said.end.stop_id.has_value());
    EXPECT_FALSE(said.end.stop_string.has_value());
  }
}

TEST(ChoiceOutputTest, StopIdIsReportedAsIdOrAsTheStringItStandsFor) {
  const Said id = Speak({'h', 'Q'}, {.stop_token_ids = {'Q'}}, Ended(GenerationEnd::kStopId, 'Q'));
  EXPECT_EQ(id.text, "h");
  EXPECT_EQ(id.end.stop_id, 'Q');
  const Said string =
      Speak({'h', kHelloToken}, {.stops = {"hello"}, .stop_string_ids = {{kHelloToken, "hello"}}},
            Ended(GenerationEnd::kStopId, kHelloToken));
  EXPECT_EQ(string.text, "h");
  EXPECT_EQ(string.end.stop_string, "hello");
}

TEST(ChoiceOutputTest, OffsetsCountCharactersOfTheOutput) {
  std::vector<int32_t> ids = Bytes("\xC3\xA9z");
  ids.push_back(kHelloToken);
  ids.push_back('!');
  const Said said = Speak(ids, {.keep_records = true});
  std::vector<int32_t> offsets;
  for (const TokenRecord& record : said.records) offsets.push_back(record.text_offset);
  EXPECT_EQ(offsets, (std::vector<int32_t>{0, 0, 1, 2, 7}));
}

}  // namespace
}  // namespace penstock
