#pragma once

// A text side without files: id 0..255 is that byte, 256 and 257 are the special tokens <|end|> and
// <|user|>, 258 is "hello". Chats render as "role: content\n" lines.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "router/api/served_text.h"

namespace penstock {

inline constexpr int32_t kEndToken = 256;
inline constexpr int32_t kUserToken = 257;
inline constexpr int32_t kHelloToken = 258;

inline std::string FakePiece(int32_t id) {
  if (id == kEndToken) return "<|end|>";
  if (id == kUserToken) return "<|user|>";
  if (id == kHelloToken) return "hello";
  return std::string(1, static_cast<char>(id));
}

class FakeText final : public ServedText {
 public:
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, bool) const override {
    std::vector<int32_t> ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  absl::StatusOr<std::vector<int32_t>> EncodeChat(const RequestedChat& chat, bool) const override {
    if (!has_template) return absl::FailedPreconditionError("no template: give --chat-template");
    if (!chat_error.ok()) return chat_error;
    last_kwargs = chat.kwargs.Dump();
    std::string text = chat.chat_template;
    for (const Json& message : chat.messages.as_array()) {
      const Json& content = *message.Find("content");
      text += message.Find("role")->as_string() + ": ";
      text += content.is_string() ? content.as_string() : content.Dump();
      text += "\n";
    }
    return Encode(text, false);
  }
  std::string Decode(const std::vector<int32_t>& ids, bool skip_special) const override {
    std::string text;
    for (const int32_t id : ids) {
      if (!skip_special || !IsSpecial(id)) text += FakePiece(id);
    }
    return text;
  }
  std::unique_ptr<TextStream> NewStream(bool skip_special) const override {
    return std::make_unique<Stream>(skip_special);
  }
  std::string TokenBytes(int32_t id) const override { return FakePiece(id); }
  std::string TokenPiece(int32_t id) const override { return FakePiece(id); }
  bool IsSpecial(int32_t id) const override { return id == kEndToken || id == kUserToken; }
  std::optional<int32_t> SingleToken(std::string_view text) const override {
    for (int32_t id = 0; id <= kHelloToken; ++id) {
      if (FakePiece(id) == text) return id;
    }
    return std::nullopt;
  }
  int32_t max_token_bytes() const override { return 8; }
  const GenerationDefaults& defaults() const override { return generation_defaults; }

  GenerationDefaults generation_defaults;
  bool has_template = true;
  absl::Status chat_error;
  mutable std::string last_kwargs;  // of the chat that was rendered last

 private:
  // Holds back an incomplete UTF-8 tail, as the real one.
  class Stream final : public TextStream {
   public:
    explicit Stream(bool skip_special) : skip_special_(skip_special) {}
    std::string Push(int32_t id) override {
      if (skip_special_ && id >= kEndToken && id <= kUserToken) return {};
      held_ += FakePiece(id);
      size_t tail = 0;  // bytes of an incomplete character at the end
      for (size_t n = 1; n <= std::min<size_t>(3, held_.size()); ++n) {
        const auto c = static_cast<unsigned char>(held_[held_.size() - n]);
        if ((c & 0xC0) == 0x80) continue;
        const size_t wanted = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;
        if (wanted > n) tail = n;
        break;
      }
      std::string out = held_.substr(0, held_.size() - tail);
      held_.erase(0, out.size());
      return out;
    }
    std::string Flush() override {
      return held_.empty() ? std::string() : std::string("\xEF\xBF\xBD");
    }

   private:
    const bool skip_special_;
    std::string held_;
  };
};

inline std::shared_ptr<ServedModel> FakeModel() {
  auto model = std::make_shared<ServedModel>();
  model->name = "fake";
  model->fingerprint = "0123456789abcdef";
  model->max_model_len = 100;
  model->vocab_size = 300;
  model->block_size = 16;
  model->eos_token_ids = {kEndToken};
  model->created = 1'700'000'000;
  return model;
}

}  // namespace penstock
