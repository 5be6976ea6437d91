// What the reference (Hugging Face's tokenizers) makes of 1,750 hostile strings with ten small
// tokenizers, which between them use every kind of step: ids, text and stream deltas are the same.

#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "common/json/json.h"
#include "common/text/stream_decoder.h"
#include "tests/common/text/golden_tokenizers.h"

namespace penstock {
namespace {

std::vector<int32_t> Ids(const Json& record, std::string_view key) {
  std::vector<int32_t> ids;
  for (const Json& id : record.Find(key)->as_array()) {
    ids.push_back(static_cast<int32_t>(id.ToInt64().value()));
  }
  return ids;
}

void Compare(const Tokenizer& tokenizer, const Json& record) {
  const std::string& text = record.Find("text")->as_string();
  SCOPED_TRACE(record.Find("text")->Dump());
  const std::vector<int32_t> ids = Ids(record, "ids");
  EXPECT_EQ(*tokenizer.Encode(text), ids);
  EXPECT_EQ(*tokenizer.Encode(text, {.add_special = true}), Ids(record, "with_special"));
  EXPECT_EQ(tokenizer.Decode(ids), record.Find("decoded")->as_string());
  EXPECT_EQ(tokenizer.Decode(ids, false), record.Find("decoded_all")->as_string());
  // The same through the other entrance, with nothing from a user.
  EXPECT_EQ(*tokenizer.EncodeMarked({.text = text, .user_ranges = {}}), ids);
  const Json* deltas = record.Find("deltas");
  if (deltas->is_null()) return;  // the reference takes text back here: a stream cannot
  StreamDecoder stream(tokenizer);
  Json::Array ours;
  for (const int32_t id : ids) ours.emplace_back(stream.Push(id));
  ours.emplace_back(stream.Flush());
  EXPECT_EQ(Json(std::move(ours)).Dump(), deltas->Dump());
}

class Goldens : public ::testing::TestWithParam<const char*> {};

TEST_P(Goldens, EqualTheReference) {
  const std::unique_ptr<const Tokenizer> tokenizer = LoadGolden(GetParam());
  std::ifstream file(GoldenPath("goldens.jsonl"));
  const std::string start = "{\"file\": \"" + std::string(GetParam()) + ".json\"";
  int compared = 0;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(start)) continue;
    const auto record = Json::Parse(line);
    ASSERT_TRUE(record.ok()) << record.status();
    Compare(*tokenizer, *record);
    ++compared;
  }
  EXPECT_GE(compared, 150);
}

// A word without an end must not take quadratic time (then these would take minutes).
TEST_P(Goldens, EnormousWords) {
  const std::unique_ptr<const Tokenizer> tokenizer = LoadGolden(GetParam());
  std::mt19937 random(5);
  std::string letters(200'000, 'a');
  for (char& c : letters) c = static_cast<char>('a' + random() % 26);
  for (const std::string& text : {letters, std::string(200'000, 'a'), std::string(200'000, ' ')}) {
    for (const bool plain : {false, true}) {
      const auto ids = tokenizer->Encode(text, {.plain = plain});
      ASSERT_TRUE(ids.ok()) << ids.status();
      if (std::string_view("gpt2 llama3 o200k smollm").find(GetParam()) != std::string_view::npos) {
        EXPECT_EQ(tokenizer->Decode(*ids), text);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Goldens, ::testing::ValuesIn(kGoldenTokenizers),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace penstock
