#include "common/text/stream_decoder.h"

#include "common/text/tokenizer_impl.h"
#include "common/text/utf8.h"

namespace penstock {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(&tokenizer), skip_special_(skip_special), joining_(tokenizer.impl().joining()) {}

std::string StreamDecoder::Push(int32_t id) {
  return joining_ == Joining::kNone ? PushWindow(id) : PushBytes(id);
}

std::string_view StreamDecoder::NewBytes(int32_t id) {
  const TokenizerImpl& impl = tokenizer_->impl();
  if (skip_special_ && impl.IsSpecial(id)) return {};
  std::string_view bytes = impl.JoinedBytes(id);
  if (joining_ == Joining::kSentencePiece && !printed_ && !dropped_ && impl.DropsSpace(id)) {
    bytes.remove_prefix(1);
    dropped_ = !impl.drops_every_space();
  }
  printed_ = printed_ || !bytes.empty();
  return bytes;
}

std::string StreamDecoder::Printed(std::string_view bytes) const {
  std::string text;
  if (joining_ == Joining::kSentencePiece) {
    AppendLossyBytes(&text, bytes);
  } else {
    AppendLossyUtf8(&text, bytes);
  }
  return text;
}

std::string StreamDecoder::PushBytes(int32_t id) {
  const std::string_view bytes = NewBytes(id);
  if (bytes.empty()) return "";
  held_ += bytes;
  if (LossyEndsInReplacement(held_) && ++held_tokens_ <= kMaxHeldTokens) return "";
  held_tokens_ = 0;
  // The last character may still grow when the limit, not its end, lets the text go.
  size_t keep = 0, broken = 0;
  for (size_t n = 1; n <= 3 && n < held_.size() && keep == 0; ++n) {
    if (ValidCharAt(held_, held_.size() - n, &broken) == 0 && broken == n &&
        (static_cast<uint8_t>(held_[held_.size() - n]) & 0xC0) == 0xC0) {
      keep = n;
    }
  }
  const std::string tail = held_.substr(held_.size() - keep);
  held_.resize(held_.size() - keep);
  std::string out = Printed(held_);
  held_ = tail;
  return out;
}

std::string StreamDecoder::PushWindow(int32_t id) {
  // As DecodeStream does: text is what the window's ids print beyond its first prefix_ids_ ids.
  if (prefix_.empty() && !window_.empty()) {
    std::string text = tokenizer_->Decode(window_, skip_special_);
    if (!text.ends_with(kReplacementCharacter)) {
      prefix_ = std::move(text);
      prefix_ids_ = window_.size();
    }
  }
  all_.push_back(id);
  window_.push_back(id);
  const std::string text = tokenizer_->Decode(window_, skip_special_);
  if (text.size() <= prefix_.size()) return "";
  if (text.ends_with(kReplacementCharacter) && ++held_tokens_ <= kMaxHeldTokens) return "";
  held_tokens_ = 0;
  // A byte that joins a broken run can change what is out already; what is out stays.
  size_t from = prefix_.size();
  while (from < text.size() && (static_cast<uint8_t>(text[from]) & 0xC0) == 0x80) ++from;
  std::string out = text.substr(from);
  const size_t fresh = window_.size() - prefix_ids_;
  window_.erase(window_.begin(), window_.begin() + static_cast<ptrdiff_t>(prefix_ids_));
  prefix_ = tokenizer_->Decode(window_, skip_special_);
  prefix_ids_ = fresh;
  emitted_bytes_ += out.size();
  return out;
}

std::string StreamDecoder::Flush() {
  std::string out;
  if (joining_ != Joining::kNone) {
    out = Printed(held_);
  } else {
    const std::string text = tokenizer_->Decode(all_, skip_special_);
    if (text.size() > emitted_bytes_) {
      size_t from = emitted_bytes_;
      while (from < text.size() && (static_cast<uint8_t>(text[from]) & 0xC0) == 0x80) ++from;
      out = text.substr(from);
    }
  }
  held_.clear();
  printed_ = dropped_ = false;
  held_tokens_ = 0;
  all_.clear();
  window_.clear();
  prefix_.clear();
  prefix_ids_ = 0;
  emitted_bytes_ = 0;
  return out;
}

}  // namespace penstock
