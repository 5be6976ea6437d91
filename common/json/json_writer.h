#pragma once

// The one writer of everything that goes out. Appends to a string of the caller's, allocates
// nothing else. Invalid UTF-8 in a string becomes U+FFFD: output is always valid JSON.

#include <cstdint>
#include <string>
#include <string_view>

#include "common/json/json.h"

namespace penstock {

// Appends text as a JSON string with its quotes.
void AppendJsonString(std::string* out, std::string_view text);
// The same without the quotes (for pre-rendered templates around one string).
void AppendJsonEscaped(std::string* out, std::string_view text);
// Shortest text that reads back as the same double. Not finite: CHECK fails.
void AppendJsonNumber(std::string* out, double value);
void AppendJson(std::string* out, const Json& value);

class JsonWriter {
 public:
  explicit JsonWriter(std::string* out) : out_(*out) {}
  JsonWriter& BeginObject() { return Open('{'); }
  JsonWriter& EndObject() { return Close('}'); }
  JsonWriter& BeginArray() { return Open('['); }
  JsonWriter& EndArray() { return Close(']'); }
  JsonWriter& Key(std::string_view key);
  JsonWriter& String(std::string_view value);
  JsonWriter& Int(int64_t value);
  JsonWriter& Double(double value);
  JsonWriter& Bool(bool value);
  JsonWriter& Null();
  JsonWriter& Value(const Json& value);

 private:
  JsonWriter& Open(char bracket);
  JsonWriter& Close(char bracket);
  void Separate();  // a comma where one is due

  std::string& out_;
  bool need_comma_ = false;
};

}  // namespace penstock
