#include "common/text/chat_template.h"

#include <algorithm>

#include "common/base/status.h"
#include "common/text/chat_messages.h"
#include "common/text/jinja/program.h"
#include "common/text/jinja/value.h"

namespace penstock {

using jinja::FromJson;
using jinja::Value;
using jinja::Variables;

namespace {

// Roles out of which templates build control tokens ('<|' + role + '|>'). The API knows them all.
bool IsKnownRole(const Json& role) {
  if (!role.is_string()) return false;
  for (const std::string_view known : {"system", "developer", "user", "assistant", "tool",
                                       "function", "ipython", "model", "critic", "context"}) {
    if (role.as_string() == known) return true;
  }
  return false;
}

Value MessageValue(const Json& message) {
  if (!message.is_object()) return FromJson(message, true);
  auto dict = std::make_shared<jinja::DictObject>();
  for (const JsonMember& member : message.as_object()) {
    const bool user = !(member.key == "role" && IsKnownRole(member.value));
    dict->SetString(jinja::Text::FromUser(member.key), FromJson(member.value, user));
  }
  return Value::Of(jinja::Kind::kDict, std::move(dict));
}

Value MessagesValue(const Json& messages) {
  if (!messages.is_array()) return FromJson(messages, true);
  std::vector<Value> items;
  for (const Json& message : messages.as_array()) items.push_back(MessageValue(message));
  return jinja::MakeList(std::move(items));
}

bool IsEmptyList(const Json& json) { return json.is_array() && json.as_array().empty(); }

}  // namespace

ChatTemplate::ChatTemplate(std::shared_ptr<const jinja::Program> program)
    : program_(std::move(program)) {}

const std::string& ChatTemplate::source() const { return program_->source(); }
const std::vector<std::string>& ChatTemplate::literals() const { return program_->literals(); }

absl::StatusOr<std::shared_ptr<const ChatTemplate>> ChatTemplate::Compile(std::string source) {
  ASSIGN_OR_RETURN(auto program, jinja::Program::Compile(std::move(source)));
  std::shared_ptr<ChatTemplate> result(new ChatTemplate(std::move(program)));
  result->DetectForms();
  return std::shared_ptr<const ChatTemplate>(result);
}

// Tries both forms. A template takes one when the text in it comes out, and not as a printed list.
void ChatTemplate::DetectForms() {
  static constexpr const char* kProbe = "PROBE7TEXT";
  const auto renders = [&](const Json& content) {
    for (const bool with_system : {false, true}) {
      Json::Array messages;
      if (with_system) {
        messages.push_back(Json::Object{{"role", "system"}, {"content", content}});
      }
      messages.push_back(Json::Object{{"role", "user"}, {"content", content}});
      Variables variables = {{"messages", MessagesValue(Json(messages))},
                             {"tools", Value::None()},
                             {"documents", Value::None()},
                             {"add_generation_prompt", Value::Bool(true)}};
      for (const char* token : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
        variables.emplace_back(token, Value::String(""));
      }
      const auto text = program_->Render(variables, {});
      if (!text.ok()) continue;
      const size_t found = text->text.find(kProbe);
      if (found == std::string::npos) continue;
      if (text->text.find("'text'") != std::string::npos) return false;
      if (text->text.find("\"text\"") != std::string::npos) return false;
      return true;
    }
    return false;
  };
  const Json parts =
      Json::Array{Json(Json::Object{{"type", "text"}, {"text", std::string(kProbe)}})};
  forms_.parts = renders(parts);
  forms_.text = !forms_.parts || renders(Json(std::string(kProbe)));
}

namespace {

absl::StatusOr<MarkedText> RenderWith(const jinja::Program& program, const Json& variables,
                                      const TemplateClock& clock) {
  if (!variables.is_null() && !variables.is_object()) {
    return InvalidArgument("the template's variables must be an object, not %s",
                           std::string(variables.type_name()));
  }
  Variables values;
  if (variables.is_object()) {
    for (const JsonMember& member : variables.as_object()) {
      values.emplace_back(member.key, FromJson(member.value, true));
    }
  }
  jinja::RenderOptions options;
  options.clock = clock;
  return program.Render(values, options);
}

}  // namespace

absl::StatusOr<MarkedText> ChatTemplate::RenderVars(const Json& variables,
                                                    const TemplateClock& clock) const {
  return RenderWith(*program_, variables, clock);
}

absl::StatusOr<ChatRendering> ChatTemplate::Render(const ChatInput& input) const {
  ASSIGN_OR_RETURN(Json messages, PrepareMessages(input.messages, forms_));
  ContinuedField continued;
  if (!input.continue_field.empty()) {
    ASSIGN_OR_RETURN(continued, MarkContinuation(input.continue_field, source(), &messages));
  }
  const auto render = [&](const Json& chat) -> absl::StatusOr<MarkedText> {
    Variables variables = {
        {"messages", MessagesValue(chat)},
        {"tools", IsEmptyList(input.tools) ? Value::None() : FromJson(input.tools, true)},
        {"documents", FromJson(input.documents, true)},
        {"add_generation_prompt", Value::Bool(input.add_generation_prompt)}};
    for (const auto& [name, text] : input.special_tokens) {
      variables.emplace_back(name, Value::String(text));
    }
    if (input.extra.is_object()) {
      for (const JsonMember& member : input.extra.as_object()) {
        variables.emplace_back(member.key, FromJson(member.value, true));
      }
    }
    jinja::RenderOptions options;
    options.clock = input.clock;
    return program_->Render(variables, options);
  };
  ChatRendering result;
  result.num_broken_arguments = CountBrokenArguments(messages);
  auto text = render(messages);
  if (!text.ok() && result.num_broken_arguments > 0) {
    auto second = render(WithoutBrokenArguments(messages));
    if (second.ok()) text = std::move(second);
  }
  RETURN_IF_ERROR(text.status());
  if (!input.continue_field.empty()) {
    ASSIGN_OR_RETURN(result.text, CutContinuation(*std::move(text), continued));
  } else {
    result.text = *std::move(text);
  }
  return result;
}

// --- Named templates ---

absl::StatusOr<ChatTemplateSet> ChatTemplateSet::Compile(const Sources& sources) {
  ChatTemplateSet set;
  for (const auto& [name, source] : sources) {
    auto compiled = ChatTemplate::Compile(source);
    if (!compiled.ok()) {
      const absl::Status& status = compiled.status();
      return absl::Status(
          status.code(), absl::StrFormat("template '%s': %s", name, std::string(status.message())));
    }
    auto existing = std::find_if(set.templates_.begin(), set.templates_.end(),
                                 [&](const auto& entry) { return entry.first == name; });
    if (existing != set.templates_.end()) {
      existing->second = *compiled;
    } else {
      set.templates_.emplace_back(name, *compiled);
    }
  }
  return set;
}

absl::StatusOr<std::shared_ptr<const ChatTemplate>> ChatTemplateSet::For(bool has_tools) const {
  const auto find = [&](std::string_view name) -> std::shared_ptr<const ChatTemplate> {
    for (const auto& [known, compiled] : templates_) {
      if (known == name) return compiled;
    }
    return nullptr;
  };
  if (has_tools) {
    if (auto found = find("tool_use")) return found;
  }
  if (auto found = find("default")) return found;
  if (templates_.size() == 1) return templates_[0].second;
  if (templates_.empty()) {
    return FailedPrecondition(
        "this model has no chat template: give one with --chat-template FILE (or put "
        "chat_template.jinja beside its weights), or send text to /v1/completions");
  }
  std::string names;
  for (const auto& [name, compiled] : templates_) names += (names.empty() ? "" : ", ") + name;
  return FailedPrecondition(
      "this model's chat templates (%s) include no 'default': choose one with --chat-template",
      names);
}

// --- The command line's filter ---

namespace {

absl::StatusOr<TemplateClock> ParseClock(const Json* clock) {
  if (clock == nullptr || clock->is_null()) return TemplateClock();
  std::tm time{};
  if (!clock->is_string() ||
      strptime(clock->as_string().c_str(), "%Y-%m-%dT%H:%M:%S", &time) == nullptr) {
    return InvalidArgument("'clock' must look like 2026-03-05T14:07:09");
  }
  time.tm_isdst = -1;
  std::tm normalized = time;
  timegm(&normalized);  // fills in the day of the week and of the year
  time.tm_wday = normalized.tm_wday;
  time.tm_yday = normalized.tm_yday;
  return TemplateClock([time] { return time; });
}

absl::StatusOr<MarkedText> RenderRequest(const Json& request) {
  const Json* source = request.Find("template");
  if (source == nullptr || !source->is_string()) {
    return InvalidArgument("'template' must be a string");
  }
  ASSIGN_OR_RETURN(const auto program, jinja::Program::Compile(source->as_string()));
  ASSIGN_OR_RETURN(const TemplateClock clock, ParseClock(request.Find("clock")));
  Json variables = Json::Object();
  if (const Json* given = request.Find("vars"); given != nullptr && !given->is_null()) {
    if (!given->is_object()) return InvalidArgument("'vars' must be an object");
    variables = *given;
  }
  const Json* messages = request.Find("messages");
  if (messages != nullptr) variables.Set("messages", *messages);
  const Json* go_on = request.Find("continue_final_message");
  std::string field;
  if (go_on != nullptr && go_on->is_string()) {
    field = go_on->as_string();
  } else if (go_on != nullptr && go_on->is_bool()) {
    field = go_on->as_bool() ? "content" : "";
  } else if (go_on != nullptr && !go_on->is_null()) {
    return InvalidArgument("'continue_final_message' must be a boolean or the name of a field");
  }
  if (field.empty()) return RenderWith(*program, variables, clock);
  const Json* chat_member = variables.Find("messages");
  Json chat = chat_member != nullptr ? AliasReasoning(*chat_member) : Json(Json::Array());
  ASSIGN_OR_RETURN(const ContinuedField continued,
                   MarkContinuation(field, source->as_string(), &chat));
  variables.Set("messages", std::move(chat));
  ASSIGN_OR_RETURN(MarkedText text, RenderWith(*program, variables, clock));
  return CutContinuation(std::move(text), continued);
}

}  // namespace

Json AnswerTemplateRequest(const Json& request) {
  auto text = RenderRequest(request);
  if (text.ok()) return Json::Object{{"text", std::move(text->text)}};
  return Json::Object{{"error", std::string(text.status().message())}};
}

}  // namespace penstock
