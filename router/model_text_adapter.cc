#include "router/model_text_adapter.h"

#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/text/chat_template.h"
#include "common/text/model_text.h"
#include "common/text/stream_decoder.h"

namespace penstock {
namespace {

class DecoderStream final : public TextStream {
 public:
  DecoderStream(const Tokenizer& tokenizer, bool skip_special)
      : decoder_(tokenizer, skip_special) {}
  std::string Push(int32_t id) override { return decoder_.Push(id); }
  std::string Flush() override { return decoder_.Flush(); }

 private:
  StreamDecoder decoder_;
};

class ModelTextAdapter final : public ServedText {
 public:
  ModelTextAdapter(ModelText text, ChatTemplateSet templates, bool trust_user)
      : text_(std::move(text)), templates_(std::move(templates)), trust_user_(trust_user) {}

  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              bool add_special) const override {
    ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                     tokenizer().Encode(text, {.add_special = add_special}));
    // Text that already begins with BOS gets no second one.
    const std::optional<int32_t> bos = tokenizer().bos_id();
    if (add_special && bos.has_value() && ids.size() >= 2 && ids[0] == *bos && ids[1] == *bos) {
      ids.erase(ids.begin());
    }
    return ids;
  }

  absl::StatusOr<std::vector<int32_t>> EncodeChat(const RequestedChat& chat,
                                                  bool add_special) const override {
    ASSIGN_OR_RETURN(const std::shared_ptr<const ChatTemplate> chat_template,
                     chat.chat_template.empty() ? templates_.For(false)
                                                : ChatTemplate::Compile(chat.chat_template));
    ChatInput input;
    input.messages = chat.messages;
    input.documents = chat.documents;
    input.add_generation_prompt = chat.add_generation_prompt;
    if (chat.continue_final_message) input.continue_field = "content";
    input.special_tokens = tokenizer().special_tokens();
    input.extra = chat.kwargs;
    ASSIGN_OR_RETURN(const ChatRendering rendering, chat_template->Render(input));
    if (trust_user_) {
      return tokenizer().Encode(rendering.text.text, {.add_special = add_special});
    }
    return tokenizer().EncodeMarked(rendering.text, add_special);
  }

  std::string Decode(const std::vector<int32_t>& ids, bool skip_special) const override {
    return tokenizer().Decode(ids, skip_special);
  }
  std::unique_ptr<TextStream> NewStream(bool skip_special) const override {
    return std::make_unique<DecoderStream>(tokenizer(), skip_special);
  }
  std::string TokenBytes(int32_t id) const override { return tokenizer().TokenBytes(id); }
  std::string TokenPiece(int32_t id) const override {
    return std::string(tokenizer().IdToToken(id));
  }
  bool IsSpecial(int32_t id) const override { return tokenizer().IsSpecial(id); }

  std::optional<int32_t> SingleToken(std::string_view text) const override {
    const auto ids = tokenizer().Encode(text);
    if (!ids.ok() || ids->size() != 1) return std::nullopt;
    const int32_t id = ids->front();
    const bool exact = tokenizer().TokenBytes(id) == text || tokenizer().IdToToken(id) == text;
    return exact ? std::optional<int32_t>(id) : std::nullopt;
  }

  int32_t max_token_bytes() const override { return tokenizer().max_token_bytes(); }
  const GenerationDefaults& defaults() const override { return text_.defaults; }

 private:
  const Tokenizer& tokenizer() const { return *text_.tokenizer; }

  const ModelText text_;
  const ChatTemplateSet templates_;
  const bool trust_user_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const ServedText>> LoadServedText(const ServedModel& model,
                                                                 const ServedTextOptions& options) {
  TextAssets assets;
  for (const ModelAsset& asset : model.assets) assets.emplace(asset.name, asset.data);
  ASSIGN_OR_RETURN(ModelText text, LoadModelText(assets, model.name));
  ChatTemplateSet::Sources sources = text.chat_templates;
  if (!options.chat_template.empty()) sources = {{"default", options.chat_template}};
  ASSIGN_OR_RETURN(ChatTemplateSet templates, ChatTemplateSet::Compile(sources));
  if (templates.empty()) {
    LogWarning(
        "model %s has no chat template: chat requests are refused; give one with "
        "--chat-template FILE",
        model.name);
  }
  return std::make_shared<const ModelTextAdapter>(std::move(text), std::move(templates),
                                                  options.trust_user_special_tokens);
}

}  // namespace penstock
