#include "common/text/chat_messages.h"

#include <algorithm>
#include <array>

#include "common/base/status.h"
#include "common/text/jinja/text.h"

namespace penstock {
namespace {

constexpr std::array<std::string_view, 3> kReasoningFields = {"reasoning_content", "thinking",
                                                              "reasoning"};
// One trailing space tells afterwards whether the template trimmed the text.
constexpr std::string_view kMarker = "CONTINUE_FINAL_MESSAGE_TAG ";
constexpr std::string_view kTrimmedMarker = kMarker.substr(0, kMarker.size() - 1);

std::string Trimmed(const std::string& text) {
  return jinja::Strip(jinja::Text(text), true, true).bytes;
}

// --- Content ---

absl::StatusOr<std::string> JoinParts(const Json::Array& parts, size_t index) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Json* type = parts[i].Find("type");
    const Json* part = parts[i].Find("text");
    if (parts[i].is_string()) part = &parts[i];
    const bool is_text = type == nullptr || *type == Json("text") || *type == Json("input_text") ||
                         *type == Json("output_text") || *type == Json("refusal");
    if (part == nullptr && is_text) part = parts[i].Find("refusal");
    if (!is_text || part == nullptr || !part->is_string()) {
      return InvalidArgument(
          "messages[%d].content[%d]: this model's chat template takes text parts only "
          "({\"type\": \"text\", \"text\": \"...\"})",
          index, i);
    }
    if (i > 0) text += '\n';
    text += part->as_string();
  }
  return text;
}

absl::Status PrepareContent(Json* message, ContentForms forms, size_t index) {
  const Json* content = message->Find("content");
  if (content == nullptr) {
    const Json* role = message->Find("role");
    const bool may_lack = role != nullptr && (*role == Json("assistant") || *role == Json("tool") ||
                                              *role == Json("function"));
    if (!may_lack) return InvalidArgument("messages[%d].content is missing", index);
    message->Set("content", "");
    content = message->Find("content");
  }
  if (content->is_array()) {
    ASSIGN_OR_RETURN(std::string text, JoinParts(content->as_array(), index));
    if (!forms.parts) message->Set("content", std::move(text));
    return absl::OkStatus();
  }
  if (content->is_string()) {
    if (forms.text) return absl::OkStatus();
    Json part = Json::Object{{"type", "text"}, {"text", content->as_string()}};
    message->Set("content", Json::Array{std::move(part)});
    return absl::OkStatus();
  }
  return InvalidArgument("messages[%d].content must be a string or a list of parts, not %s", index,
                         std::string(content->type_name()));
}

// --- Tool calls ---

template <typename F>
void ForEachArguments(Json* messages, F visit) {
  if (!messages->is_array()) return;
  for (Json& message : messages->as_array()) {
    if (!message.is_object()) continue;
    for (JsonMember& member : message.as_object()) {
      if (member.key != "tool_calls" || !member.value.is_array()) continue;
      for (Json& call : member.value.as_array()) {
        if (!call.is_object()) continue;
        for (JsonMember& part : call.as_object()) {
          if (part.key == "arguments") visit(&part.value);
          if (part.key != "function" || !part.value.is_object()) continue;
          for (JsonMember& inner : part.value.as_object()) {
            if (inner.key == "arguments") visit(&inner.value);
          }
        }
      }
    }
  }
}

void ParseArguments(Json* messages) {
  ForEachArguments(messages, [](Json* arguments) {
    if (arguments->is_null()) *arguments = Json(Json::Object());
    if (!arguments->is_string()) return;
    if (Trimmed(arguments->as_string()).empty()) {
      *arguments = Json(Json::Object());
      return;
    }
    auto parsed = Json::Parse(arguments->as_string());
    if (parsed.ok() && parsed->is_object()) *arguments = *std::move(parsed);
  });
}

}  // namespace

Json AliasReasoning(const Json& messages) {
  Json result = messages;
  if (!result.is_array()) return result;
  for (Json& message : result.as_array()) {
    if (!message.is_object()) continue;
    const Json* reasoning = nullptr;
    for (const std::string_view field : kReasoningFields) {
      const Json* found = message.Find(field);
      if (reasoning == nullptr && found != nullptr && !found->is_null()) reasoning = found;
    }
    if (reasoning == nullptr) continue;
    const Json copy = *reasoning;
    for (const std::string_view field : kReasoningFields) {
      const Json* own = message.Find(field);
      if (own == nullptr || own->is_null()) message.Set(field, copy);
    }
  }
  return result;
}

absl::StatusOr<Json> PrepareMessages(const Json& messages, ContentForms forms) {
  if (!messages.is_array()) return InvalidArgument("messages must be a list");
  Json::Array prepared;
  for (size_t i = 0; i < messages.as_array().size(); ++i) {
    const Json& message = messages.as_array()[i];
    if (!message.is_object()) return InvalidArgument("messages[%d] must be an object", i);
    Json::Object members;
    for (const JsonMember& member : message.as_object()) {
      if (!member.value.is_null()) members.push_back(member);
    }
    Json copy(std::move(members));
    RETURN_IF_ERROR(PrepareContent(&copy, forms, i));
    prepared.push_back(std::move(copy));
  }
  Json result = AliasReasoning(Json(std::move(prepared)));
  ParseArguments(&result);
  return result;
}

int CountBrokenArguments(const Json& messages) {
  Json copy = messages;
  int count = 0;
  ForEachArguments(&copy, [&](Json* arguments) { count += arguments->is_object() ? 0 : 1; });
  return count;
}

Json WithoutBrokenArguments(const Json& messages) {
  Json copy = messages;
  ForEachArguments(&copy, [](Json* arguments) {
    if (!arguments->is_object()) *arguments = Json(Json::Object());
  });
  return copy;
}

// --- Going on from the last message ---

absl::StatusOr<ContinuedField> MarkContinuation(const std::string& field,
                                                const std::string& template_source,
                                                Json* messages) {
  if (!messages->is_array() || messages->as_array().empty()) {
    return InvalidArgument("continue_final_message is set but the conversation is empty");
  }
  Json& last = messages->as_array().back();
  const Json* value = last.Find(field);
  if (value == nullptr || value->is_null()) {
    return InvalidArgument(
        "continue_final_message is set but the final message has no '%s' to continue", field);
  }
  std::vector<std::string> fields = {field};
  const bool is_reasoning =
      std::find(kReasoningFields.begin(), kReasoningFields.end(), field) != kReasoningFields.end();
  if (is_reasoning) {
    fields.clear();
    for (const std::string_view name : kReasoningFields) {
      const Json* other = last.Find(name);
      if (other != nullptr && *other == *value) fields.emplace_back(name);
    }
  }
  const bool mentioned = std::any_of(fields.begin(), fields.end(), [&](const std::string& name) {
    return template_source.find(name) != std::string::npos;
  });
  if (!mentioned) {
    return InvalidArgument(
        "continue_final_message is set to '%s', a field that the chat template does not read",
        field);
  }
  ContinuedField continued;
  if (value->is_string()) {
    continued.text = value->as_string();
    for (const std::string& name : fields) last.Set(name, continued.text + std::string(kMarker));
    return continued;
  }
  if (value->is_array()) {
    Json parts = *value;
    for (auto part = parts.as_array().rbegin(); part != parts.as_array().rend(); ++part) {
      const Json* text = part->Find("text");
      if (text == nullptr || !text->is_string()) continue;
      continued.text = text->as_string();
      part->Set("text", continued.text + std::string(kMarker));
      for (const std::string& name : fields) last.Set(name, parts);
      return continued;
    }
  }
  return InvalidArgument(
      "continue_final_message is set but there is no text to continue in the final message");
}

absl::StatusOr<MarkedText> CutContinuation(MarkedText rendered, const ContinuedField& continued) {
  const size_t marker = rendered.text.rfind(kTrimmedMarker);
  if (marker == std::string::npos ||
      rendered.text.find(Trimmed(continued.text)) == std::string::npos) {
    return InvalidArgument(
        "continue_final_message is set but the final message does not appear in the chat after the "
        "template was applied: the template drops or changes it");
  }
  size_t end = marker;
  if (rendered.text.compare(marker, kMarker.size(), kMarker) != 0) {  // the template trims
    const jinja::Text before(rendered.text.substr(0, marker));
    end = jinja::Strip(before, false, true).bytes.size();
  }
  rendered.text.resize(end);
  auto& ranges = rendered.user_ranges;
  while (!ranges.empty() && ranges.back().first >= end) ranges.pop_back();
  if (!ranges.empty()) ranges.back().second = std::min(ranges.back().second, end);
  return rendered;
}

}  // namespace penstock
