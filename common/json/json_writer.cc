#include "common/json/json_writer.h"

#include <array>
#include <charconv>
#include <cmath>

#include "common/base/check.h"

namespace penstock {
namespace {

// Length of the valid UTF-8 sequence at text[i], or 0.
size_t Utf8Length(std::string_view text, size_t i) {
  const auto byte = [&](size_t k) { return static_cast<unsigned char>(text[i + k]); };
  const auto tail = [&](size_t k) { return i + k < text.size() && (byte(k) & 0xC0) == 0x80; };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return tail(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    if (!tail(1) || !tail(2)) return 0;
    if (lead == 0xE0 && byte(1) < 0xA0) return 0;
    if (lead == 0xED && byte(1) > 0x9F) return 0;
    return 3;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    if (!tail(1) || !tail(2) || !tail(3)) return 0;
    if (lead == 0xF0 && byte(1) < 0x90) return 0;
    if (lead == 0xF4 && byte(1) > 0x8F) return 0;
    return 4;
  }
  return 0;
}

void AppendControl(std::string* out, unsigned char c) {
  constexpr char kDigits[] = "0123456789abcdef";
  switch (c) {
    case '"':
      out->append("\\\"");
      return;
    case '\\':
      out->append("\\\\");
      return;
    case '\n':
      out->append("\\n");
      return;
    case '\r':
      out->append("\\r");
      return;
    case '\t':
      out->append("\\t");
      return;
    case '\b':
      out->append("\\b");
      return;
    case '\f':
      out->append("\\f");
      return;
    default:
      out->append("\\u00");
      out->push_back(kDigits[c >> 4]);
      out->push_back(kDigits[c & 15]);
  }
}

template <typename T>
void AppendChars(std::string* out, T value) {
  std::array<char, 32> buffer;
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  CHECK(result.ec == std::errc());
  out->append(buffer.data(), result.ptr);
}

}  // namespace

void AppendJsonEscaped(std::string* out, std::string_view text) {
  size_t start = 0;
  size_t i = 0;
  const auto flush = [&] { out->append(text.data() + start, i - start); };
  while (i < text.size()) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c < 0x80 && c != '"' && c != '\\') {
      ++i;
    } else if (c < 0x80) {
      flush();
      AppendControl(out, c);
      start = ++i;
    } else if (const size_t length = Utf8Length(text, i); length > 0) {
      i += length;
    } else {
      flush();
      out->append("\xEF\xBF\xBD");
      start = ++i;
    }
  }
  flush();
}

void AppendJsonString(std::string* out, std::string_view text) {
  out->push_back('"');
  AppendJsonEscaped(out, text);
  out->push_back('"');
}

void AppendJsonNumber(std::string* out, double value) {
  CHECK(std::isfinite(value));
  AppendChars(out, value);
}

void AppendJson(std::string* out, const Json& value) {
  JsonWriter writer(out);
  writer.Value(value);
}

JsonWriter& JsonWriter::Open(char bracket) {
  Separate();
  out_.push_back(bracket);
  need_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::Close(char bracket) {
  out_.push_back(bracket);
  need_comma_ = true;
  return *this;
}

void JsonWriter::Separate() {
  if (need_comma_) out_.push_back(',');
  need_comma_ = true;
}

JsonWriter& JsonWriter::Key(std::string_view key) {
  Separate();
  AppendJsonString(&out_, key);
  out_.push_back(':');
  need_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::String(std::string_view value) {
  Separate();
  AppendJsonString(&out_, value);
  return *this;
}

JsonWriter& JsonWriter::Int(int64_t value) {
  Separate();
  AppendChars(&out_, value);
  return *this;
}

JsonWriter& JsonWriter::Double(double value) {
  Separate();
  AppendJsonNumber(&out_, value);
  return *this;
}

JsonWriter& JsonWriter::Bool(bool value) {
  Separate();
  out_.append(value ? "true" : "false");
  return *this;
}

JsonWriter& JsonWriter::Null() {
  Separate();
  out_.append("null");
  return *this;
}

JsonWriter& JsonWriter::Value(const Json& value) {
  if (value.is_null()) return Null();
  if (value.is_bool()) return Bool(value.as_bool());
  if (value.is_string()) return String(value.as_string());
  if (value.is_number()) {
    Separate();
    out_.append(value.number_text());
    return *this;
  }
  if (value.is_array()) {
    BeginArray();
    for (const Json& item : value.as_array()) Value(item);
    return EndArray();
  }
  BeginObject();
  for (const JsonMember& member : value.as_object()) {
    Key(member.key);
    Value(member.value);
  }
  return EndObject();
}

}  // namespace penstock
