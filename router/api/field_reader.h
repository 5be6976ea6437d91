#pragma once

// Reads typed fields of a JSON object and keeps the first error, which names field, type or range
// and the value. null is absent. Checks are written so that NaN fails. One use, one thread.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/json/json.h"
#include "router/api/error_body.h"

namespace penstock {

class FieldReader {
 public:
  // object must be an object and outlive the reader; prefix ("messages[0].") leads field names.
  explicit FieldReader(const Json& object, std::string prefix = {})
      : object_(object), prefix_(std::move(prefix)) {}

  // The value, or null pointer when absent or null.
  const Json* Get(std::string_view name) const;

  // Absent, or wrong (then there is an error): nullopt.
  std::optional<bool> Bool(std::string_view name);
  std::optional<std::string> String(std::string_view name);
  std::optional<int64_t> Int(std::string_view name, int64_t min = INT64_MIN,
                             int64_t max = INT64_MAX);
  // With open_min the minimum itself is refused.
  std::optional<double> Number(std::string_view name, double min, double max,
                               bool open_min = false);
  // A list of integers that fit in 31 bits; empty when absent.
  std::vector<int32_t> TokenIds(std::string_view name);

  void Fail(std::string_view name, std::string message);
  void Fail(ApiError error) {
    if (!error_.has_value()) error_ = std::move(error);
  }
  bool ok() const { return !error_.has_value(); }
  const ApiError& error() const { return *error_; }
  const Json& object() const { return object_; }

 private:
  void WrongType(std::string_view name, std::string_view wanted, const Json& value);

  const Json& object_;
  const std::string prefix_;
  std::optional<ApiError> error_;
};

// The value for a message: numbers as written (shortened), everything else as its type.
std::string ShowValue(const Json& value);

}  // namespace penstock
