#pragma once

// Chat templates: what turns a chat into the text that a model reads. Templates are compiled once;
// everything here is immutable afterwards and may be used from any thread.

#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/json/json.h"
#include "common/text/chat_messages.h"
#include "common/text/marked_text.h"

namespace penstock {

namespace jinja {
class Program;
}

using TemplateClock = std::function<std::tm()>;  // local time; empty: the machine's

struct ChatInput {
  Json messages;   // array of objects, as the API validated them
  Json tools;      // array of objects, or null (an empty array counts as null)
  Json documents;  // array of objects, or null
  bool add_generation_prompt = false;
  // The field of the last message whose text goes on ("content" for `true`); empty: none.
  std::string continue_field;
  // bos_token, eos_token, ... by name: template text, never marked as the user's.
  std::vector<std::pair<std::string, std::string>> special_tokens;
  Json extra;  // object: chat_template_kwargs of the request, which win over special tokens
  TemplateClock clock;
};

struct ChatRendering {
  MarkedText text;
  // Calls of earlier turns whose arguments were no JSON object; see Render.
  int num_broken_arguments = 0;
};

class ChatTemplate {
 public:
  // InvalidArgument: wrong syntax; Unimplemented: uses what is not supported. Both name line and
  // column.
  static absl::StatusOr<std::shared_ptr<const ChatTemplate>> Compile(std::string source);

  // What the template makes of a chat. Before it runs:
  // - members of messages that are null are dropped; an assistant's or tool's missing content
  //   becomes "", anyone else's is an error;
  // - content in text parts is joined with newlines for a template that wants strings, and a string
  //   becomes one part for a template that only takes parts;
  // - a tool call's arguments are parsed when they are a JSON object ("" = {}), keys and numbers as
  //   written. Others stay the string that they are, or become {} when the template fails on it;
  // - reasoning_content, thinking and reasoning are one field of three names.
  // All strings and keys of messages, tools, documents and extra are marked as the user's, but for
  // the values of the well-known roles, out of which templates build control tokens.
  // InvalidArgument: the chat does not fit the template, with raise_exception's own text if it
  // called that. ResourceExhausted: a limit on size, steps or time.
  absl::StatusOr<ChatRendering> Render(const ChatInput& input) const;

  // The template with exactly these variables (an object), all marked as the user's.
  absl::StatusOr<MarkedText> RenderVars(const Json& variables, const TemplateClock& clock) const;

  const ContentForms& content_forms() const { return forms_; }
  const std::string& source() const;
  // Literal text and string constants: what control tokens the template writes itself.
  const std::vector<std::string>& literals() const;

 private:
  explicit ChatTemplate(std::shared_ptr<const jinja::Program> program);
  void DetectForms();

  std::shared_ptr<const jinja::Program> program_;
  ContentForms forms_;
};

// A model's templates by name. "default" serves chats; "tool_use" serves chats with tools.
class ChatTemplateSet {
 public:
  // Names and texts, as ModelText gathers them from a model's files.
  using Sources = std::vector<std::pair<std::string, std::string>>;

  // Later sources replace earlier ones of the same name. An empty set is fine: For() then says what
  // is missing.
  static absl::StatusOr<ChatTemplateSet> Compile(const Sources& sources);

  bool empty() const { return templates_.empty(); }
  // FailedPrecondition when the model has no template, naming the remedy.
  absl::StatusOr<std::shared_ptr<const ChatTemplate>> For(bool has_tools) const;

 private:
  std::vector<std::pair<std::string, std::shared_ptr<const ChatTemplate>>> templates_;
};

// One line of `penstock text --jsonl` with "template": {"template", "vars"[, "clock"][, "messages"]
// [, "continue_final_message": true or a field's name]} to {"text"} or {"error"}. vars are exactly
// the template's variables; messages go among them.
Json AnswerTemplateRequest(const Json& request);

}  // namespace penstock
