#pragma once

// Text of a growing list of ids, piece by piece. All deltas together are Tokenizer::Decode of all
// ids; each is what Hugging Face's DecodeStream hands out after that id. Text that ends in U+FFFD
// (a character still incomplete) is held back, for at most kMaxHeldTokens tokens, so that bytes
// which never become a character cannot stall a stream. What was handed out is never taken back.
//
// One object per choice, used by one thread at a time; the tokenizer must outlive it.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/text/tokenizer.h"

namespace penstock {

enum class Joining;

class StreamDecoder {
 public:
  static constexpr int kMaxHeldTokens = 64;

  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true);

  // What can be handed out now that id has come; often empty.
  std::string Push(int32_t id);
  // The rest, as Decode would print it. The next Push starts a new text.
  std::string Flush();

 private:
  std::string PushBytes(int32_t id);
  std::string_view NewBytes(int32_t id);
  std::string Printed(std::string_view bytes) const;
  std::string PushWindow(int32_t id);

  const Tokenizer* tokenizer_;
  bool skip_special_;
  Joining joining_;                         // kNone: window mode, else bytes mode
  std::string held_;                        // bytes mode: bytes not handed out yet
  bool printed_ = false, dropped_ = false;  // bytes mode: anything yet; the first space
  int held_tokens_ = 0;
  std::vector<int32_t> all_;     // window mode: every id, for the flush
  std::vector<int32_t> window_;  // window mode: ids whose text is compared
  std::string prefix_;           // text of the window's first prefix_ids_ ids
  size_t prefix_ids_ = 0;
  size_t emitted_bytes_ = 0;
};

}  // namespace penstock
