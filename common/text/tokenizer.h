#pragma once

// Text to token ids and back, equal to what Hugging Face's `tokenizers` (or sentencepiece, or
// tiktoken) makes of the same file.
//
// Immutable after Create: any thread may call any method at any time. Encode is linear in the text
// (n log n inside one enormous word). Text that is not valid UTF-8 is read with U+FFFD in the place
// of every broken sequence. Not here: chat templates, files (load_tokenizer.h).

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/text/marked_text.h"
#include "common/text/tokenizer_spec.h"

namespace penstock {

struct EncodeOptions {
  // Put the post-processor's tokens (bos, [CLS], ...) around the text.
  bool add_special = false;
  // The text comes from a user: no added token is recognised in it, and the model cannot
  // yield one either.
  bool plain = false;
};

class TokenizerImpl;

class Tokenizer {
 public:
  // InvalidArgument naming what is wrong in the spec (a merge of unknown pieces, a bad regex, ...).
  static absl::StatusOr<std::unique_ptr<const Tokenizer>> Create(TokenizerSpec spec);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // InvalidArgument when the model has no token for a part of the text and no unknown token, or
  // when a pattern of the file gave up on this text (its retry limit).
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              const EncodeOptions& options = {}) const;
  // The same for rendered text: no added token is recognised where any of its bytes is a user's.
  // Everything else runs as over the whole text.
  absl::StatusOr<std::vector<int32_t>> EncodeMarked(const MarkedText& marked,
                                                    bool add_special = false) const;

  // Ids that do not exist print nothing. The result is valid UTF-8.
  std::string Decode(const std::vector<int32_t>& ids, bool skip_special = true) const;

  // The bytes that this token stands for inside a text (byte-level and byte-fallback pieces as
  // bytes, U+2581 as a space), or the piece itself. Empty for an id that does not exist.
  std::string TokenBytes(int32_t id) const;
  // The piece as the file writes it. Empty for an id that does not exist.
  std::string_view IdToToken(int32_t id) const;
  std::optional<int32_t> TokenToId(std::string_view token) const;

  // One more than the highest id, added tokens included.
  int32_t vocab_size() const;
  // Ids of added tokens that are special, ascending.
  const std::vector<int32_t>& special_ids() const;
  bool IsSpecial(int32_t id) const;
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;
  // Named special tokens in file order: {"bos_token", "<s>"}, ...
  const std::vector<std::pair<std::string, std::string>>& special_tokens() const;
  const std::vector<AddedToken>& added_tokens() const;
  // The longest piece in bytes of text: no text of n bytes has fewer than n / this tokens (a
  // normaliser that drops or shortens text, or an unknown token, makes it 0: no such bound).
  int32_t max_token_bytes() const;

  const TokenizerImpl& impl() const { return *impl_; }  // for StreamDecoder

 private:
  explicit Tokenizer(std::unique_ptr<TokenizerImpl> impl);
  std::unique_ptr<TokenizerImpl> impl_;
};

}  // namespace penstock
