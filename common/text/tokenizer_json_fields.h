#pragma once

// Typed reads of a JSON object's members with messages that name the place. Private to the
// tokenizer.json reader.

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/status.h"
#include "common/json/json.h"
#include "common/text/tokenizer_spec.h"
#include "common/text/utf8.h"

namespace penstock {

class Fields {
 public:
  // value outlives this; where: "normalizer", "added_tokens[3]", ...
  static absl::StatusOr<Fields> Of(const Json& value, std::string where) {
    if (!value.is_object()) {
      return InvalidArgument("%s: must be an object, is %s", where, value.type_name());
    }
    return Fields(value, std::move(where));
  }

  const std::string& where() const { return where_; }
  // The member, or null when absent or null.
  const Json* Find(std::string_view key) const {
    const Json* member = value_->Find(key);
    return member == nullptr || member->is_null() ? nullptr : member;
  }
  absl::StatusOr<const Json*> Need(std::string_view key) const {
    const Json* member = Find(key);
    if (member == nullptr) return InvalidArgument("%s: '%s' is missing", where_, key);
    return member;
  }

  absl::Status Read(std::string_view key, bool* out) const {
    const Json* member = Find(key);
    if (member == nullptr) return absl::OkStatus();
    if (!member->is_bool()) return Wrong(key, *member, "a boolean");
    *out = member->as_bool();
    return absl::OkStatus();
  }
  absl::Status Read(std::string_view key, std::string* out) const {
    const Json* member = Find(key);
    if (member == nullptr) return absl::OkStatus();
    if (!member->is_string()) return Wrong(key, *member, "a string");
    *out = member->as_string();
    return absl::OkStatus();
  }
  absl::Status Read(std::string_view key, int64_t* out) const {
    const Json* member = Find(key);
    if (member == nullptr) return absl::OkStatus();
    const std::optional<int64_t> number = member->ToInt64();
    if (!number.has_value()) return Wrong(key, *member, "an integer");
    *out = *number;
    return absl::OkStatus();
  }
  template <typename T>
  absl::Status Read(std::string_view key, std::optional<T>* out) const {
    if (Find(key) == nullptr) return absl::OkStatus();
    T value{};
    RETURN_IF_ERROR(Read(key, &value));
    *out = std::move(value);
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> NeedString(std::string_view key) const {
    RETURN_IF_ERROR(Need(key).status());
    std::string value;
    RETURN_IF_ERROR(Read(key, &value));
    return value;
  }
  absl::StatusOr<int32_t> NeedId(std::string_view key) const {
    ASSIGN_OR_RETURN(const Json* member, Need(key));
    return Id(*member, key);
  }
  absl::StatusOr<int32_t> Id(const Json& value, std::string_view key) const {
    const std::optional<int64_t> number = value.ToInt64();
    if (!number.has_value() || *number < 0 || *number > std::numeric_limits<int32_t>::max()) {
      return Wrong(key, value, "an id (0 to 2^31 - 1)");
    }
    return static_cast<int32_t>(*number);
  }
  absl::StatusOr<const Json::Array*> NeedArray(std::string_view key) const {
    ASSIGN_OR_RETURN(const Json* member, Need(key));
    if (!member->is_array()) return Wrong(key, *member, "an array");
    return &member->as_array();
  }
  // {"String": s} or {"Regex": s}.
  absl::Status Read(std::string_view key, Pattern* out) const {
    ASSIGN_OR_RETURN(const Json* member, Need(key));
    for (const bool regex : {false, true}) {
      const Json* text = member->Find(regex ? "Regex" : "String");
      if (text == nullptr || !text->is_string()) continue;
      *out = {text->as_string(), regex};
      return absl::OkStatus();
    }
    return Wrong(key, *member, R"({"String": ...} or {"Regex": ...})");
  }
  // A string of one character.
  absl::Status ReadChar(std::string_view key, std::string* out) const {
    ASSIGN_OR_RETURN(const std::string text, NeedString(key));
    if (text.empty() || Utf8Length(text[0]) != text.size()) {
      return InvalidArgument("%s.%s: must be one character, is '%s'", where_, key, text);
    }
    *out = text;
    return absl::OkStatus();
  }

  absl::Status Wrong(std::string_view key, const Json& value, std::string_view wanted) const {
    return InvalidArgument("%s.%s: must be %s, is %s", where_, key, wanted, value.type_name());
  }
  absl::Status UnknownType(std::string_view type) const {
    return Unimplemented("%s: type '%s' is not supported", where_, type);
  }

 private:
  Fields(const Json& value, std::string where) : value_(&value), where_(std::move(where)) {}
  const Json* value_;
  std::string where_;
};

}  // namespace penstock
