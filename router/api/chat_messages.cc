#include "router/api/chat_messages.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "router/api/field_reader.h"

namespace penstock {
namespace {

using MaybeError = std::optional<ApiError>;

constexpr auto kRoles = std::to_array<std::string_view>(
    {"system", "developer", "user", "assistant", "tool", "function"});
constexpr auto kMediaParts = std::to_array<std::string_view>(
    {"image_url", "input_image", "image", "input_audio", "audio_url", "audio", "video_url", "video",
     "file", "input_file"});

template <size_t N>
bool Contains(const std::array<std::string_view, N>& list, std::string_view item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

// One content part, which must be text.
MaybeError CheckPart(const Json& part, const std::string& where) {
  if (part.is_string()) return std::nullopt;  // as vLLM: a bare string in the list is text
  const Json* type = part.Find("type");
  if (type == nullptr || !type->is_string()) {
    return BadField(where, where + " must be an object with a string `type`");
  }
  const std::string& name = type->as_string();
  if (Contains(kMediaParts, name)) {
    return NotSupported(where, where + ": input of type " + name + " (the model reads text)");
  }
  const std::string_view field = name == "refusal" ? "refusal" : "text";
  if (name != "text" && name != "refusal") {
    return BadField(where,
                    absl::StrFormat("%s.type must be \"text\", got %s", where, ShowValue(*type)));
  }
  const Json* text = part.Find(field);
  if (text == nullptr || !text->is_string()) {
    return BadField(where, absl::StrFormat("%s must have a string `%s`", where, field));
  }
  return std::nullopt;
}

Json TextPart(const Json& part) {
  if (part.is_object() && part.Find("refusal") == nullptr) return part;
  Json out;
  out.Set("type", "text");
  out.Set("text", part.is_string() ? part : *part.Find("refusal"));
  return out;
}

MaybeError NormalizeContent(const Json* content, bool may_be_null, const std::string& where,
                            Json* out) {
  if (content == nullptr || content->is_null()) {
    if (!may_be_null) return BadField(where, where + " is required and must not be null");
    *out = "";
    return std::nullopt;
  }
  if (content->is_string()) {
    *out = *content;
    return std::nullopt;
  }
  if (!content->is_array()) {
    return BadField(where, absl::StrFormat("%s must be a string or a list of parts, got %s", where,
                                           ShowValue(*content)));
  }
  Json::Array parts;
  for (size_t i = 0; i < content->as_array().size(); ++i) {
    const Json& part = content->as_array()[i];
    if (MaybeError error = CheckPart(part, absl::StrFormat("%s[%d]", where, i))) return error;
    parts.push_back(TextPart(part));
  }
  *out = parts.empty() ? Json("") : Json(std::move(parts));
  return std::nullopt;
}

// The arguments stay as they are: the template layer parses them, or not.
MaybeError CheckToolCalls(const Json& calls, const std::string& where) {
  if (!calls.is_array()) {
    return BadField(where, absl::StrFormat("%s must be a list, got %s", where, ShowValue(calls)));
  }
  for (size_t i = 0; i < calls.as_array().size(); ++i) {
    const Json* function = calls.as_array()[i].Find("function");
    const Json* name = function == nullptr ? nullptr : function->Find("name");
    if (name == nullptr || !name->is_string()) {
      const std::string item = absl::StrFormat("%s[%d]", where, i);
      return BadField(item, item + ".function must be an object with a string `name`");
    }
  }
  return std::nullopt;
}

MaybeError NormalizeMessage(const Json& message, const std::string& where, Json* out) {
  if (!message.is_object()) {
    return BadField(where,
                    absl::StrFormat("%s must be an object, got %s", where, ShowValue(message)));
  }
  const Json* role = message.Find("role");
  if (role == nullptr || !role->is_string() || !Contains(kRoles, role->as_string())) {
    return BadField(where + ".role", where +
                                         ".role must be one of system, developer, user, "
                                         "assistant, tool and function");
  }
  const bool may_be_null = role->as_string() == "assistant" || role->as_string() == "tool" ||
                           role->as_string() == "function";
  Json content;
  if (MaybeError error =
          NormalizeContent(message.Find("content"), may_be_null, where + ".content", &content)) {
    return error;
  }
  Json::Object members;
  bool has_content = false;
  for (const JsonMember& member : message.as_object()) {
    if (member.key == "content") {
      members.push_back({member.key, content});
      has_content = true;
    } else if (member.value.is_null()) {
      continue;  // null = absent
    } else if (member.key == "tool_calls") {
      if (MaybeError error = CheckToolCalls(member.value, where + ".tool_calls")) return error;
      if (!member.value.as_array().empty()) members.push_back(member);
    } else {
      members.push_back(member);
    }
  }
  if (!has_content) members.push_back({"content", std::move(content)});
  *out = std::move(members);
  return std::nullopt;
}

}  // namespace

ApiOr<Json> NormalizeMessages(const Json& messages) {
  if (!messages.is_array()) {
    return BadField("messages", "messages must be a list, got " + ShowValue(messages));
  }
  if (messages.as_array().empty()) {
    return BadField("messages", "messages must hold at least one message");
  }
  Json::Array list(messages.as_array().size());
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string where = absl::StrFormat("messages[%d]", i);
    if (MaybeError error = NormalizeMessage(messages.as_array()[i], where, &list[i])) return *error;
  }
  return Json(std::move(list));
}

size_t StringBytes(const Json& value) {
  size_t bytes = 0;
  if (value.is_string()) bytes = value.as_string().size();
  if (value.is_array()) {
    for (const Json& item : value.as_array()) bytes += StringBytes(item);
  }
  if (value.is_object()) {
    for (const JsonMember& member : value.as_object()) bytes += StringBytes(member.value);
  }
  return bytes;
}

}  // namespace penstock
