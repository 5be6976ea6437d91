#include "worker/text_adapter.h"

#include <utility>

#include "common/base/status.h"
#include "common/json/json.h"
#include "common/text/chat_template.h"
#include "common/text/stream_decoder.h"

namespace penstock {
namespace {

class DecodedStream final : public TextStream {
 public:
  DecodedStream(const Tokenizer& tokenizer, bool keep_special)
      : tokenizer_(tokenizer), keep_special_(keep_special), decoder_(tokenizer, !keep_special) {}

  std::string Append(int32_t id) override { return decoder_.Push(id); }
  std::string Hidden(int32_t id) override {
    return !keep_special_ && tokenizer_.IsSpecial(id) ? tokenizer_.TokenBytes(id) : std::string();
  }
  std::string Flush() override { return decoder_.Flush(); }

 private:
  const Tokenizer& tokenizer_;
  const bool keep_special_;
  StreamDecoder decoder_;
};

// Empty text is null.
absl::StatusOr<Json> ParseMember(const char* name, const std::string& text) {
  if (text.empty()) return Json();
  auto parsed = Json::Parse(text);
  if (!parsed.ok()) return InvalidArgument("%s: %s", name, std::string(parsed.status().message()));
  return parsed;
}

absl::Status CheckMessages(const Json& messages) {
  if (!messages.is_array() || messages.as_array().empty()) {
    return InvalidArgument("messages_json: expected an array of at least one message");
  }
  for (size_t i = 0; i < messages.as_array().size(); ++i) {
    const Json* role = messages.as_array()[i].Find("role");
    if (role == nullptr || !role->is_string()) {
      return InvalidArgument("messages_json: message %d has no role (a string)", i);
    }
  }
  return absl::OkStatus();
}

class LoadedText final : public TextModel {
 public:
  LoadedText(ModelText text, ChatTemplateSet templates)
      : text_(std::move(text)), templates_(std::move(templates)) {}

  // As /v1/completions: a raw prompt may hold control tokens.
  absl::StatusOr<std::vector<int32_t>> EncodeText(std::string_view text) const override {
    return text_.tokenizer->Encode(text, {.add_special = true});
  }

  absl::StatusOr<std::vector<int32_t>> EncodeChat(const ChatPrompt& chat) const override {
    ChatInput input;
    ASSIGN_OR_RETURN(input.messages, ParseMember("messages_json", chat.messages_json));
    RETURN_IF_ERROR(CheckMessages(input.messages));
    ASSIGN_OR_RETURN(input.tools, ParseMember("tools_json", chat.tools_json));
    if (!input.tools.is_null() && !input.tools.is_array()) {
      return InvalidArgument("tools_json: expected an array of tools");
    }
    ASSIGN_OR_RETURN(input.extra, ParseMember("template_kwargs_json", chat.template_kwargs_json));
    if (input.extra.is_null()) input.extra = Json(Json::Object());
    if (!input.extra.is_object()) {
      return InvalidArgument("template_kwargs_json: expected an object");
    }
    input.add_generation_prompt = chat.add_generation_prompt;
    if (chat.continue_final_message) input.continue_field = "content";
    input.special_tokens = text_.tokenizer->special_tokens();
    const bool has_tools = input.tools.is_array() && !input.tools.as_array().empty();
    ASSIGN_OR_RETURN(const auto chat_template, templates_.For(has_tools));
    ASSIGN_OR_RETURN(const ChatRendering rendering, chat_template->Render(input));
    return text_.tokenizer->EncodeMarked(rendering.text);
  }

  std::unique_ptr<TextStream> NewStream(bool keep_special_tokens) const override {
    return std::make_unique<DecodedStream>(*text_.tokenizer, keep_special_tokens);
  }

  SamplingDefaults defaults() const override {
    const GenerationDefaults& in = text_.defaults;
    SamplingDefaults out;
    if (in.temperature) out.temperature = static_cast<float>(*in.temperature);
    if (in.top_p) out.top_p = static_cast<float>(*in.top_p);
    if (in.top_k) out.top_k = static_cast<int32_t>(*in.top_k);
    if (in.min_p) out.min_p = static_cast<float>(*in.min_p);
    if (in.repetition_penalty) out.repetition_penalty = static_cast<float>(*in.repetition_penalty);
    return out;
  }

 private:
  const ModelText text_;
  const ChatTemplateSet templates_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const TextModel>> MakeTextModel(ModelText text) {
  ASSIGN_OR_RETURN(ChatTemplateSet templates, ChatTemplateSet::Compile(text.chat_templates));
  return std::make_shared<const LoadedText>(std::move(text), std::move(templates));
}

}  // namespace penstock
