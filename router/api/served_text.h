#pragma once

// The text side of the served model, as the API needs it: a small interface over common/text, so
// that the API's tests need no tokenizer files. Implementations are immutable; any thread.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/text/model_text.h"
#include "router/api/requests.h"
#include "router/pool/pool.h"

namespace penstock {

// One output's ids to text, incrementally. Used by one thread at a time.
class TextStream {
 public:
  virtual ~TextStream() = default;
  // What this id makes printable, in whole characters.
  virtual std::string Push(int32_t id) = 0;
  virtual std::string Flush() = 0;
};

class ServedText {
 public:
  virtual ~ServedText() = default;
  // Text from a caller who may use control tokens (completions). BOS is not doubled.
  virtual absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                                      bool add_special) const = 0;
  // FailedPrecondition when the model has no chat template, InvalidArgument when the template
  // refuses the messages.
  virtual absl::StatusOr<std::vector<int32_t>> EncodeChat(const RequestedChat& chat,
                                                          bool add_special) const = 0;
  virtual std::string Decode(const std::vector<int32_t>& ids, bool skip_special) const = 0;
  virtual std::unique_ptr<TextStream> NewStream(bool skip_special) const = 0;
  // The bytes that a token stands for inside a text.
  virtual std::string TokenBytes(int32_t id) const = 0;
  // The piece as the vocabulary writes it.
  virtual std::string TokenPiece(int32_t id) const = 0;
  virtual bool IsSpecial(int32_t id) const = 0;
  // The token whose text is exactly this, when there is one.
  virtual std::optional<int32_t> SingleToken(std::string_view text) const = 0;
  // No text of n bytes has fewer than n / this tokens; 0: no such bound.
  virtual int32_t max_token_bytes() const = 0;
  virtual const GenerationDefaults& defaults() const = 0;
};

// What requests are served with: made once per model, shared, immutable.
struct LoadedModel {
  std::shared_ptr<const ServedModel> served;
  std::shared_ptr<const ServedText> text;
};

}  // namespace penstock
