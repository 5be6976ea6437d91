#include "deploy/text_command.h"

#include <iostream>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/base/exit_codes.h"
#include "common/base/status.h"
#include "common/formats/mapped_file.h"
#include "common/json/json.h"
#include "common/json/json_writer.h"
#include "common/text/chat_template.h"
#include "common/text/model_text.h"
#include "common/text/text_jsonl.h"

namespace penstock {
namespace {

constexpr std::string_view kHelp =
    R"(penstock text MODEL --messages FILE [--tools FILE]   show the rendered prompt, ids and pieces
penstock text MODEL --prompt TEXT                    the same for plain text
penstock text --jsonl                                a filter: one JSON object a line in and out

MODEL is a folder, a GGUF file or a tokenizer file.
  --messages FILE           JSON: an array of messages, or an object with "messages" (and "tools")
  --tools FILE              JSON: an array of tools
  --prompt TEXT             plain text instead of a chat, with the tokenizer's own bos
  --chat-template FILE      a Jinja template instead of the model's own
  --continue-final-message  the last message goes on; no prompt for a new one
  --no-generation-prompt    leave out what begins the answer
)";

struct TextArguments {
  std::string model, messages, tools, chat_template;
  std::optional<std::string> prompt;
  bool jsonl = false;
  bool help = false;
  bool continue_final = false;
  bool generation_prompt = true;
};

absl::StatusOr<TextArguments> ParseArguments(std::span<const std::string> arguments) {
  TextArguments parsed;
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::string flag = arguments[i];
    std::optional<std::string> value;
    if (const size_t equals = flag.find('='); flag.starts_with("--") && equals != flag.npos) {
      value = flag.substr(equals + 1);
      flag.resize(equals);
    }
    const auto take = [&](std::string* to) -> absl::Status {
      if (!value.has_value() && i + 1 >= arguments.size()) {
        return InvalidArgument("%s needs a value", flag);
      }
      *to = value.has_value() ? *value : arguments[++i];
      return absl::OkStatus();
    };
    if (flag == "--jsonl") {
      parsed.jsonl = true;
    } else if (flag == "--help" || flag == "-h") {
      parsed.help = true;
    } else if (flag == "--continue-final-message") {
      parsed.continue_final = true;
    } else if (flag == "--no-generation-prompt") {
      parsed.generation_prompt = false;
    } else if (flag == "--messages") {
      RETURN_IF_ERROR(take(&parsed.messages));
    } else if (flag == "--tools") {
      RETURN_IF_ERROR(take(&parsed.tools));
    } else if (flag == "--chat-template") {
      RETURN_IF_ERROR(take(&parsed.chat_template));
    } else if (flag == "--prompt") {
      RETURN_IF_ERROR(take(&parsed.prompt.emplace()));
    } else if (flag.starts_with("-")) {
      return InvalidArgument("unknown flag %s (penstock text --help lists them)", flag);
    } else if (parsed.model.empty()) {
      parsed.model = flag;
    } else {
      return InvalidArgument("two models: %s and %s", parsed.model, flag);
    }
  }
  return parsed;
}

absl::StatusOr<Json> ReadJson(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  absl::StatusOr<Json> json = Json::Parse(text);
  if (!json.ok()) return InvalidArgument("%s: %s", path, json.status().message());
  return json;
}

absl::StatusOr<std::shared_ptr<const ChatTemplate>> TemplateFor(const TextArguments& arguments,
                                                                const ModelText& model,
                                                                bool has_tools) {
  if (!arguments.chat_template.empty()) {
    ASSIGN_OR_RETURN(std::string source, ReadFile(arguments.chat_template));
    return ChatTemplate::Compile(std::move(source));
  }
  const std::string* source = model.FindTemplate("", has_tools);
  if (source == nullptr) {
    return FailedPrecondition("%s has no chat template: give one with --chat-template FILE",
                              arguments.model);
  }
  return ChatTemplate::Compile(*source);
}

absl::StatusOr<MarkedText> RenderChat(const TextArguments& arguments, const ModelText& model) {
  ASSIGN_OR_RETURN(Json messages, ReadJson(arguments.messages));
  ChatInput input;
  if (const Json* inner = messages.Find("messages")) {
    if (const Json* tools = messages.Find("tools")) input.tools = *tools;
    input.messages = *inner;
  } else {
    input.messages = std::move(messages);
  }
  if (!input.messages.is_array()) {
    return InvalidArgument("%s is neither an array of messages nor an object with \"messages\"",
                           arguments.messages);
  }
  if (!arguments.tools.empty()) {
    ASSIGN_OR_RETURN(input.tools, ReadJson(arguments.tools));
    if (!input.tools.is_array()) return InvalidArgument("%s is no array", arguments.tools);
  }
  input.add_generation_prompt = arguments.generation_prompt && !arguments.continue_final;
  if (arguments.continue_final) input.continue_field = "content";
  input.special_tokens = model.tokenizer->special_tokens();
  const bool has_tools = input.tools.is_array() && !input.tools.as_array().empty();
  ASSIGN_OR_RETURN(const auto chat_template, TemplateFor(arguments, model, has_tools));
  ASSIGN_OR_RETURN(ChatRendering rendering, chat_template->Render(input));
  return std::move(rendering.text);
}

void Print(const MarkedText& prompt, const std::vector<int32_t>& ids, const Tokenizer& tokenizer,
           std::ostream& out) {
  out << prompt.text;
  if (!prompt.text.ends_with('\n')) out << '\n';
  out << "\n" << ids.size() << " ids:";
  for (const int32_t id : ids) out << ' ' << id;
  out << "\n\n";
  for (const int32_t id : ids) {
    std::string bytes;
    AppendJsonString(&bytes, tokenizer.TokenBytes(id));
    out << absl::StrFormat("%8d  %s%s\n", id, bytes, tokenizer.IsSpecial(id) ? "  special" : "");
  }
}

absl::Status ShowPrompt(const TextArguments& arguments, const ModelText& model, std::ostream& out) {
  if (arguments.prompt.has_value()) {
    const MarkedText prompt{.text = *arguments.prompt, .user_ranges = {}};
    ASSIGN_OR_RETURN(const auto ids, model.tokenizer->Encode(prompt.text, {.add_special = true}));
    Print(prompt, ids, *model.tokenizer, out);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const MarkedText prompt, RenderChat(arguments, model));
  // The template wrote bos itself: the tokenizer adds none.
  ASSIGN_OR_RETURN(const auto ids, model.tokenizer->EncodeMarked(prompt));
  Print(prompt, ids, *model.tokenizer, out);
  return absl::OkStatus();
}

}  // namespace

int RunTextCommand(std::span<const std::string> arguments, std::istream& in, std::ostream& out,
                   std::ostream& err) {
  const absl::StatusOr<TextArguments> parsed = ParseArguments(arguments);
  if (!parsed.ok()) {
    err << "penstock text: " << parsed.status().message() << '\n';
    return kExitUsage;
  }
  if (parsed->help) {
    out << kHelp;
    return kExitOk;
  }
  if (parsed->jsonl) {
    if (!parsed->model.empty()) {
      err << "penstock text: --jsonl takes no MODEL; send {\"op\":\"load\",\"path\":...}\n";
      return kExitUsage;
    }
    RunTextJsonl(in, out, AnswerTemplateRequest);
    return kExitOk;
  }
  if (parsed->model.empty() || parsed->messages.empty() == !parsed->prompt.has_value()) {
    err << "penstock text needs a MODEL and either --messages FILE or --prompt TEXT\n" << kHelp;
    return kExitUsage;
  }
  const absl::StatusOr<ModelText> model = LoadModelText(parsed->model);
  const absl::Status status = model.ok() ? ShowPrompt(*parsed, *model, out) : model.status();
  if (status.ok()) return kExitOk;
  err << "penstock text: " << status.message() << '\n';
  return model.ok() ? kExitFailure : kExitModel;
}

int RunTextCommand(std::span<const std::string> arguments) {
  std::ios::sync_with_stdio(false);
  return RunTextCommand(arguments, std::cin, std::cout, std::cerr);
}

}  // namespace penstock
