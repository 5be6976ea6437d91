#include "worker/model/config_reader.h"

#include <cmath>
#include <limits>

#include "common/base/status.h"

namespace penstock {
namespace {

// A value as a message shows it: never more than a glance of it.
std::string Shown(const Json& value) {
  std::string text = value.Dump();
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

}  // namespace

const Json* ConfigReader::Find(std::string_view key) const {
  const Json* value = object_.Find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::string ConfigReader::Field(std::string_view key) const {
  return absl::StrFormat("%s: %s%s", name_, path_, key);
}

absl::StatusOr<int32_t> ConfigReader::Positive(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr) return InvalidArgument("%s is missing", Field(key));
  const std::optional<int64_t> number = value->ToInt64();
  if (!number.has_value() || *number < 1 || *number > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument("%s is %s, expected a positive integer", Field(key), Shown(*value));
  }
  return static_cast<int32_t>(*number);
}

absl::StatusOr<int32_t> ConfigReader::PositiveOr(std::string_view key, int32_t absent) const {
  if (!Has(key)) return absent;
  return Positive(key);
}

absl::StatusOr<bool> ConfigReader::BoolOr(std::string_view key, bool absent) const {
  const Json* value = Find(key);
  if (value == nullptr) return absent;
  if (!value->is_bool()) {
    return InvalidArgument("%s is %s, expected true or false", Field(key), Shown(*value));
  }
  return value->as_bool();
}

absl::StatusOr<std::optional<std::string>> ConfigReader::String(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) {
    return InvalidArgument("%s is %s, expected a string", Field(key), Shown(*value));
  }
  return std::optional<std::string>(value->as_string());
}

absl::StatusOr<double> ConfigReader::PositiveNumber(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr) return InvalidArgument("%s is missing", Field(key));
  const std::optional<double> number = value->ToDouble();
  if (!number.has_value() || !std::isfinite(*number) || *number <= 0.0) {
    return InvalidArgument("%s is %s, expected a number above 0", Field(key), Shown(*value));
  }
  return *number;
}

absl::StatusOr<double> ConfigReader::PositiveNumberOr(std::string_view key, double absent) const {
  if (!Has(key)) return absent;
  return PositiveNumber(key);
}

absl::StatusOr<std::vector<double>> ConfigReader::PositiveNumbers(std::string_view key,
                                                                  size_t count) const {
  const Json* value = Find(key);
  if (value == nullptr) return InvalidArgument("%s is missing", Field(key));
  if (!value->is_array() || value->as_array().size() != count) {
    return InvalidArgument("%s is %s, expected %d numbers", Field(key), Shown(*value), count);
  }
  std::vector<double> numbers;
  for (const Json& entry : value->as_array()) {
    const std::optional<double> number = entry.ToDouble();
    if (!number.has_value() || !std::isfinite(*number) || *number <= 0.0) {
      return InvalidArgument("%s[%d] is %s, expected a number above 0", Field(key), numbers.size(),
                             Shown(entry));
    }
    numbers.push_back(*number);
  }
  return numbers;
}

}  // namespace penstock
