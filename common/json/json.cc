#include "common/json/json.h"

#include <simdjson.h>

#include <charconv>
#include <cmath>
#include <unordered_set>

#include "common/base/check.h"
#include "common/base/status.h"
#include "common/json/json_writer.h"

namespace penstock {
namespace {

namespace od = simdjson::ondemand;

absl::Status ParseError(simdjson::error_code code) {
  return InvalidArgument("invalid JSON: %s", simdjson::error_message(code));
}

// RFC 8259 number grammar; simdjson leaves raw tokens unchecked.
bool IsJsonNumber(std::string_view text) {
  size_t i = 0;
  const auto digits = [&] {
    const size_t start = i;
    while (i < text.size() && text[i] >= '0' && text[i] <= '9') ++i;
    return i > start;
  };
  if (i < text.size() && text[i] == '-') ++i;
  if (i < text.size() && text[i] == '0') {
    ++i;
  } else if (!digits()) {
    return false;
  }
  if (i < text.size() && text[i] == '.') {
    ++i;
    if (!digits()) return false;
  }
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '+' || text[i] == '-')) ++i;
    if (!digits()) return false;
  }
  return i == text.size();
}

std::string_view Trimmed(std::string_view token) {
  while (!token.empty() && (token.back() == ' ' || token.back() == '\n' || token.back() == '\r' ||
                            token.back() == '\t')) {
    token.remove_suffix(1);
  }
  return token;
}

// Walks an On-Demand document into a tree. Depth is bounded before every descent.
class TreeBuilder {
 public:
  explicit TreeBuilder(const Json::ParseOptions& options) : options_(options) {}

  template <typename V>
  absl::StatusOr<Json> Build(V&& value, int depth) {
    od::json_type type;
    if (auto error = value.type().get(type)) return ParseError(error);
    switch (type) {
      case od::json_type::null: {
        if (Trimmed(RawToken(value)) != "null") return ParseError(simdjson::N_ATOM_ERROR);
        return Json();  // peeked, not read: the parent's iterator skips what was left unread
      }
      case od::json_type::boolean: {
        bool flag = false;
        if (auto error = value.get_bool().get(flag)) return ParseError(error);
        return Json(flag);
      }
      case od::json_type::number: {
        std::string text(Trimmed(RawToken(value)));
        if (!IsJsonNumber(text)) return ParseError(simdjson::NUMBER_ERROR);
        return Json(Json::Number{std::move(text)});
      }
      case od::json_type::string: {
        std::string_view text;
        if (auto error = value.get_string().get(text)) return ParseError(error);
        return Json(std::string(text));
      }
      case od::json_type::array:
        return BuildArray(value, depth);
      case od::json_type::object:
        return BuildObject(value, depth);
    }
    return ParseError(simdjson::TAPE_ERROR);
  }

 private:
  static std::string_view RawToken(od::value& value) { return value.raw_json_token(); }
  static std::string_view RawToken(od::document& value) {
    std::string_view token;
    return value.raw_json_token().get(token) ? std::string_view() : token;
  }
  absl::Status CheckDepth(int depth) const {
    if (depth < options_.max_depth) return absl::OkStatus();
    return InvalidArgument("invalid JSON: nested deeper than %d levels", options_.max_depth);
  }

  template <typename V>
  absl::StatusOr<Json> BuildArray(V& value, int depth) {
    RETURN_IF_ERROR(CheckDepth(depth));
    od::array array;
    if (auto error = value.get_array().get(array)) return ParseError(error);
    Json::Array items;
    for (auto element : array) {
      od::value item;
      if (auto error = std::move(element).get(item)) return ParseError(error);
      ASSIGN_OR_RETURN(Json built, Build(item, depth + 1));
      items.push_back(std::move(built));
    }
    return Json(std::move(items));
  }

  template <typename V>
  absl::StatusOr<Json> BuildObject(V& value, int depth) {
    RETURN_IF_ERROR(CheckDepth(depth));
    od::object object;
    if (auto error = value.get_object().get(object)) return ParseError(error);
    Json::Object members;
    std::unordered_set<std::string> seen;
    for (auto entry : object) {
      od::field field;
      if (auto error = std::move(entry).get(field)) return ParseError(error);
      std::string_view key_view;
      if (auto error = field.unescaped_key().get(key_view)) return ParseError(error);
      std::string key(key_view);
      ASSIGN_OR_RETURN(Json built, Build(field.value(), depth + 1));
      if (!seen.insert(key).second) {
        if (options_.reject_duplicate_keys) {
          return InvalidArgument("duplicate key '%s' in JSON object", key.substr(0, 100));
        }
        for (JsonMember& member : members) {
          if (member.key == key) member.value = std::move(built);
        }
        continue;
      }
      members.push_back({std::move(key), std::move(built)});
    }
    return Json(std::move(members));
  }

  const Json::ParseOptions options_;
};

}  // namespace

absl::StatusOr<Json> Json::Parse(std::string_view text, ParseOptions options) {
  od::parser parser;
  const simdjson::padded_string padded(text);
  od::document document;
  if (auto error = parser.iterate(padded).get(document)) return ParseError(error);
  TreeBuilder builder(options);
  ASSIGN_OR_RETURN(Json tree, builder.Build(document, 0));
  // A number or null at the root was compared to the whole rest of the text already.
  const bool read_to_end = tree.is_number() || tree.is_null();
  const char* rest = nullptr;
  if (!read_to_end && document.current_location().get(rest) != simdjson::OUT_OF_BOUNDS) {
    return InvalidArgument("invalid JSON: text after the end of the document");
  }
  return tree;
}

Json::Json(int64_t value) : value_(Number{std::to_string(value)}) {}

Json::Json(double value) {
  std::string text;
  AppendJsonNumber(&text, value);
  value_ = Number{std::move(text)};
}

Json::Json(Object value) : value_(std::move(value)) {}

bool Json::is_integer() const {
  return is_number() && number_text().find_first_of(".eE") == std::string::npos;
}

std::string_view Json::type_name() const {
  if (is_null()) return "null";
  if (is_bool()) return "boolean";
  if (is_number()) return is_integer() ? "integer" : "number";
  if (is_string()) return "string";
  return is_array() ? "array" : "object";
}

std::optional<int64_t> Json::ToInt64() const {
  if (!is_integer()) return std::nullopt;
  const std::string& text = number_text();
  int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> Json::ToDouble() const {
  if (!is_number()) return std::nullopt;
  const std::string& text = number_text();
  double value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec == std::errc::result_out_of_range) {
    // from_chars reports underflow and overflow alike; a tiny number is zero, a huge one no double.
    value = std::strtod(text.c_str(), nullptr);
    if (!std::isfinite(value)) return std::nullopt;
    return value;
  }
  if (result.ec != std::errc()) return std::nullopt;
  return value;
}

const Json* Json::Find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const JsonMember& member : as_object()) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

void Json::Set(std::string_view key, Json value) {
  if (is_null()) value_ = Object();
  for (JsonMember& member : as_object()) {
    if (member.key == key) {
      member.value = std::move(value);
      return;
    }
  }
  as_object().push_back({std::string(key), std::move(value)});
}

std::string Json::Dump() const {
  std::string out;
  AppendJson(&out, *this);
  return out;
}

bool Json::operator==(const Json& other) const { return value_ == other.value_; }

}  // namespace penstock
