#pragma once

// An ordered JSON tree that keeps every number's own text. Parsing is simdjson's (valid UTF-8,
// strict grammar, bounded depth); this is the only JSON tree in the project. Immutable in use:
// build it, then read it from any thread.

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock {

struct JsonMember;

class Json {
 public:
  // text is the literal as written ("1.0", "1e400", a 100-digit integer).
  struct Number {
    std::string text;
    bool operator==(const Number&) const = default;
  };
  using Array = std::vector<Json>;
  using Object = std::vector<JsonMember>;  // insertion order

  struct ParseOptions {
    int max_depth = 64;
    bool reject_duplicate_keys = false;  // else the last one wins
  };

  // Strict RFC 8259. The error names the byte offset or key, never more of the input.
  static absl::StatusOr<Json> Parse(std::string_view text, ParseOptions options);
  static absl::StatusOr<Json> Parse(std::string_view text) { return Parse(text, ParseOptions()); }

  Json() = default;                                      // null
  Json(std::nullptr_t) {}                                // NOLINT(google-explicit-constructor)
  Json(bool value) : value_(value) {}                    // NOLINT(google-explicit-constructor)
  Json(int value) : Json(int64_t{value}) {}              // NOLINT(google-explicit-constructor)
  Json(int64_t value);                                   // NOLINT(google-explicit-constructor)
  Json(double value);                                    // NOLINT(google-explicit-constructor)
  Json(Number value) : value_(std::move(value)) {}       // NOLINT(google-explicit-constructor)
  Json(std::string value) : value_(std::move(value)) {}  // NOLINT
  Json(std::string_view value) : value_(std::string(value)) {}  // NOLINT
  Json(const char* value) : value_(std::string(value)) {}       // NOLINT
  Json(Array value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Json(Object value);                              // NOLINT(google-explicit-constructor)

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_number() const { return std::holds_alternative<Number>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  // A number without fraction or exponent, of any size ("1e3" and "1.0" are not integers).
  bool is_integer() const;
  // "null", "boolean", "integer", "number", "string", "array" or "object", for messages.
  std::string_view type_name() const;

  // Each CHECKs the type.
  bool as_bool() const { return std::get<bool>(value_); }
  const std::string& as_string() const { return std::get<std::string>(value_); }
  const Array& as_array() const { return std::get<Array>(value_); }
  const Object& as_object() const { return std::get<Object>(value_); }
  Array& as_array() { return std::get<Array>(value_); }
  Object& as_object() { return std::get<Object>(value_); }
  const std::string& number_text() const { return std::get<Number>(value_).text; }

  // nullopt when not an integer or out of 64 bits.
  std::optional<int64_t> ToInt64() const;
  // nullopt when not a number or beyond double's range.
  std::optional<double> ToDouble() const;

  // The member's value, or null pointer when this is no object or has no such key.
  const Json* Find(std::string_view key) const;
  // Replaces or appends; this must be an object (or null, which becomes one).
  void Set(std::string_view key, Json value);

  // Compact text ({"a":1,"b":[2]}), numbers as written.
  std::string Dump() const;

  bool operator==(const Json& other) const;

 private:
  std::variant<std::monostate, bool, Number, std::string, Array, Object> value_;
};

struct JsonMember {
  std::string key;
  Json value;
  bool operator==(const JsonMember&) const = default;
};

}  // namespace penstock
