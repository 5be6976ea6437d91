#include "common/json/json.h"

#include <gtest/gtest.h>

#include <string>

#include "common/json/json_writer.h"

namespace penstock {
namespace {

TEST(Json, RoundTripsOrderAndNumberText) {
  const std::string text =
      R"({"z":1,"a":[1.0,-0,1e100,123456789012345678901234567890,null,true],"é":"\n","o":{}})";
  auto json = Json::Parse(text);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(json->Dump(), text);
  EXPECT_EQ(json->Find("z")->ToInt64(), 1);
  EXPECT_FALSE(json->Find("a")->as_array()[3].ToInt64().has_value());
  EXPECT_FALSE(json->Find("a")->as_array()[0].is_integer());
}

TEST(Json, RefusesWhatRfc8259Refuses) {
  for (const char* bad :
       {"",          "{",           "[1,]",       "{\"a\":1,}", "01",     "1.",
        "nul",       "NaN",         "[1] 2",      "\"\x01\"",   "'a'",    "\"\\ud800\"",
        "{\"a\" 1}", "-",           "+1",         "[1e]",       "tru",    "\xEF\xBB\xBF{}",
        "\"\xE5\"",  "{\"a\":NaN}", "[Infinity]", "nullx",      "[nulll]"}) {
    EXPECT_FALSE(Json::Parse(bad).ok()) << bad;
  }
}

TEST(Json, BoundsDepthWithoutRecursionBeyondIt) {
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  EXPECT_FALSE(Json::Parse(deep).ok());
  EXPECT_TRUE(Json::Parse(std::string(60, '[') + std::string(60, ']')).ok());
}

TEST(Json, DuplicateKeys) {
  Json::ParseOptions strict;
  strict.reject_duplicate_keys = true;
  EXPECT_FALSE(Json::Parse(R"({"a":1,"\u0061":2})", strict).ok());
  EXPECT_EQ(Json::Parse(R"({"a":1,"a":2})")->Dump(), R"({"a":2})");
}

TEST(Json, Numbers) {
  EXPECT_EQ(Json::Parse("9223372036854775807")->ToInt64(), INT64_MAX);
  EXPECT_FALSE(Json::Parse("9223372036854775808")->ToInt64().has_value());
  EXPECT_FALSE(Json::Parse("1e400")->ToDouble().has_value());
  EXPECT_EQ(Json::Parse("1e-400")->ToDouble(), 0.0);
  EXPECT_EQ(Json::Parse("0.1")->ToDouble(), 0.1);
}

TEST(JsonWriter, EscapesAndRepairsUtf8) {
  std::string out;
  AppendJsonString(&out, std::string_view("a\"\\\n\x01\xE5z\xC3\xA9\xED\xA0\x80", 12));
  EXPECT_EQ(out,
            "\"a\\\"\\\\\\n\\u0001\xEF\xBF\xBDz\xC3\xA9\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
  EXPECT_TRUE(Json::Parse(out).ok());
}

TEST(JsonWriter, PutsCommas) {
  std::string out;
  JsonWriter writer(&out);
  writer.BeginObject().Key("a").BeginArray().Int(1).Double(0.5).EndArray();
  writer.Key("b").Null().Key("c").BeginObject().EndObject().EndObject();
  EXPECT_EQ(out, R"({"a":[1,0.5],"b":null,"c":{}})");
}

}  // namespace
}  // namespace penstock
