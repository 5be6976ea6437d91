#pragma once

// Typed access to the fields of one JSON object of config.json, with messages that name the file,
// the field and the value. null counts as absent, as in transformers.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/json/json.h"

namespace penstock {

class ConfigReader {
 public:
  // Both are borrowed. path is "" at the top level, "rope_scaling." inside that object.
  ConfigReader(const Json& object, std::string_view name, std::string path = "")
      : object_(object), name_(name), path_(std::move(path)) {}

  // Null when absent or null.
  const Json* Find(std::string_view key) const;
  bool Has(std::string_view key) const { return Find(key) != nullptr; }

  // Required; 1 to 2^31 - 1.
  absl::StatusOr<int32_t> Positive(std::string_view key) const;
  absl::StatusOr<int32_t> PositiveOr(std::string_view key, int32_t absent) const;
  absl::StatusOr<bool> BoolOr(std::string_view key, bool absent) const;
  absl::StatusOr<std::optional<std::string>> String(std::string_view key) const;
  // Required; finite and > 0.
  absl::StatusOr<double> PositiveNumber(std::string_view key) const;
  absl::StatusOr<double> PositiveNumberOr(std::string_view key, double absent) const;
  // Required; so many finite numbers > 0.
  absl::StatusOr<std::vector<double>> PositiveNumbers(std::string_view key, size_t count) const;

  // "config.json: rope_scaling.factor", for messages.
  std::string Field(std::string_view key) const;
  std::string_view name() const { return name_; }

 private:
  const Json& object_;
  std::string_view name_;
  std::string path_;
};

}  // namespace penstock
