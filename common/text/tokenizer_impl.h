#pragma once

// The parts of a Tokenizer, put together. Private to the tokenizer and the stream decoder.

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/text/added_tokens.h"
#include "common/text/normalizer.h"
#include "common/text/pre_tokenizer.h"
#include "common/text/token_decoder.h"
#include "common/text/token_model.h"
#include "common/text/tokenizer.h"
#include "common/text/vocabulary.h"

namespace penstock {

// How the bytes of a token are read off its piece.
enum class PieceForm { kPlain, kByteLevel, kRawBytes, kMetaspace };

// Whether a text is no more than its tokens' bytes one after the other
// (TokenizerImpl::JoinedBytes).
enum class Joining {
  kNone,
  kBytes,          // read as UTF-8, a broken sequence one U+FFFD
  kSentencePiece,  // read as UTF-8, a broken byte one U+FFFD; the first pieces may lose a space
};

class TokenizerImpl {
 public:
  static absl::StatusOr<std::unique_ptr<TokenizerImpl>> Create(TokenizerSpec spec);

  using Ranges = std::vector<std::pair<size_t, size_t>>;
  // text is valid UTF-8.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, const Ranges& user,
                                              bool add_special) const;
  std::string Decode(const std::vector<int32_t>& ids, bool skip_special) const;

  std::string_view Token(int32_t id) const;
  std::optional<int32_t> Find(std::string_view token) const;
  bool IsSpecial(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < special_.size() && special_[id];
  }
  Joining joining() const { return joining_; }
  // kSentencePiece: the piece's leading space is not printed while nothing else has been; unless
  // drops_every_space, only once.
  bool DropsSpace(int32_t id) const;
  bool drops_every_space() const { return drops_every_space_; }
  const std::string& JoinedBytes(int32_t id) const {
    static const std::string none;
    return id >= 0 && static_cast<size_t>(id) < bytes_.size() ? bytes_[id] : none;
  }
  std::string TokenBytes(int32_t id) const;

  int32_t end_id = 0;
  int32_t max_token_bytes = 0;
  std::vector<int32_t> special_ids;
  std::optional<int32_t> bos_id, eos_id;
  std::vector<std::pair<std::string, std::string>> names;
  std::vector<AddedToken> added;

 private:
  TokenizerImpl(Vocabulary vocabulary, Normalizer normalizer, PreTokenizer pre_tokenizer,
                TokenDecoder decoder)
      : vocabulary_(std::move(vocabulary)),
        normalizer_(std::move(normalizer)),
        pre_tokenizer_(std::move(pre_tokenizer)),
        decoder_(std::move(decoder)) {}

  absl::Status AddTokens(std::vector<AddedToken> tokens);
  void Finish(const TokenizerSpec& spec);
  void SetMaxTokenBytes(const TokenizerSpec& spec);
  void SetJoining(const TokenizerSpec& spec);
  std::string_view Printed(int32_t id) const {
    const auto it = printed_as_.find(id);
    return it == printed_as_.end() ? Token(id) : it->second;
  }
  std::string DecodeJoined(const std::vector<int32_t>& ids, bool skip_special) const;
  std::string BytesOf(std::string_view piece) const;

  absl::Status EncodePiece(std::string_view text, size_t begin, size_t end, const Ranges& user,
                           ModelScratch* scratch, std::vector<int32_t>* out) const;
  absl::Status EncodeNormalized(const NormalizedText& text, size_t offset, bool plain,
                                const Ranges& user, ModelScratch* scratch,
                                std::vector<int32_t>* out) const;
  std::vector<int32_t> AroundText(std::vector<int32_t> ids) const;

  std::unique_ptr<ModelScratch> TakeScratch() const;
  void GiveScratch(std::unique_ptr<ModelScratch> scratch) const;

  Vocabulary vocabulary_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  TokenDecoder decoder_;
  std::unique_ptr<const TokenModel> model_;
  AddedTokenMatcher raw_matcher_, normalized_matcher_;
  std::unordered_map<std::string, int32_t> added_ids_;
  std::vector<int32_t> added_index_;                     // by id: index into added, or -1
  std::vector<bool> special_;                            // by id
  std::unordered_map<int32_t, std::string> printed_as_;  // ids that print no piece of theirs
  std::unordered_map<int32_t, std::string> normalized_content_;  // of added tokens, by id
  std::vector<std::vector<TemplateItem>> templates_;
  PieceForm form_ = PieceForm::kPlain;
  bool byte_fallback_ = false;
  Joining joining_ = Joining::kNone;
  bool drops_space_ = false, drops_every_space_ = false;
  std::vector<std::string> bytes_;  // by id, unless joining_ is kNone

  // Scratch space (with its word cache) that no call holds now.
  mutable std::mutex scratch_mutex_;
  mutable std::vector<std::unique_ptr<ModelScratch>> idle_scratch_;
};

}  // namespace penstock
