#include "router/api/field_reader.h"

#include <cmath>

#include "absl/strings/str_format.h"

namespace penstock {
namespace {

std::string ShowBound(double bound) { return absl::StrFormat("%g", bound); }

}  // namespace

std::string ShowValue(const Json& value) {
  if (value.is_bool()) return value.as_bool() ? "true" : "false";
  if (value.is_number()) {
    const std::string& text = value.number_text();
    return text.size() <= 32 ? text : text.substr(0, 32) + "...";
  }
  if (value.is_string() && value.as_string().size() <= 32) {
    return absl::StrFormat("the string \"%s\"", value.as_string());
  }
  return absl::StrFormat("a value of type %s", value.type_name());
}

const Json* FieldReader::Get(std::string_view name) const {
  const Json* value = object_.Find(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

void FieldReader::Fail(std::string_view name, std::string message) {
  Fail(BadField(prefix_ + std::string(name), std::move(message)));
}

void FieldReader::WrongType(std::string_view name, std::string_view wanted, const Json& value) {
  Fail(name, absl::StrFormat("%s%s must be %s, got %s", prefix_, name, wanted, ShowValue(value)));
}

std::optional<bool> FieldReader::Bool(std::string_view name) {
  const Json* value = Get(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_bool()) return value->as_bool();
  WrongType(name, "a boolean", *value);
  return std::nullopt;
}

std::optional<std::string> FieldReader::String(std::string_view name) {
  const Json* value = Get(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->as_string();
  WrongType(name, "a string", *value);
  return std::nullopt;
}

std::optional<int64_t> FieldReader::Int(std::string_view name, int64_t min, int64_t max) {
  const Json* value = Get(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_integer()) {
    WrongType(name, "an integer", *value);
    return std::nullopt;
  }
  const std::optional<int64_t> number = value->ToInt64();
  if (number.has_value() && *number >= min && *number <= max) return number;
  std::string range = absl::StrFormat("in [%d, %d]", min, max);
  if (max == INT64_MAX) range = absl::StrFormat("at least %d and fit in 64 bits", min);
  if (min == INT64_MIN && max == INT64_MAX) range = "an integer of 64 bits";
  Fail(name, absl::StrFormat("%s%s must be %s, got %s", prefix_, name, range, ShowValue(*value)));
  return std::nullopt;
}

std::optional<double> FieldReader::Number(std::string_view name, double min, double max,
                                          bool open_min) {
  const Json* value = Get(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    WrongType(name, "a number", *value);
    return std::nullopt;
  }
  const std::optional<double> number = value->ToDouble();
  if (!number.has_value() || !std::isfinite(*number)) {
    Fail(name,
         absl::StrFormat("%s%s must be a finite number, got %s", prefix_, name, ShowValue(*value)));
    return std::nullopt;
  }
  const bool above = open_min ? *number > min : *number >= min;
  if (above && *number <= max) return number;
  std::string range =
      absl::StrFormat("in %s%s, %s]", open_min ? "(" : "[", ShowBound(min), ShowBound(max));
  if (std::isinf(max)) {
    range = open_min && min == 0 ? "greater than zero" : "at least " + ShowBound(min);
  }
  Fail(name, absl::StrFormat("%s%s must be %s, got %s", prefix_, name, range, ShowValue(*value)));
  return std::nullopt;
}

std::vector<int32_t> FieldReader::TokenIds(std::string_view name) {
  std::vector<int32_t> ids;
  const Json* value = Get(name);
  if (value == nullptr) return ids;
  if (!value->is_array()) {
    WrongType(name, "a list of token ids", *value);
    return ids;
  }
  ids.reserve(value->as_array().size());
  for (const Json& item : value->as_array()) {
    const std::optional<int64_t> id = item.is_integer() ? item.ToInt64() : std::nullopt;
    if (!id.has_value() || *id < 0 || *id > INT32_MAX) {
      Fail(name, absl::StrFormat("%s%s must contain only token ids (integers from 0), got %s",
                                 prefix_, name, ShowValue(item)));
      return {};
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

}  // namespace penstock
