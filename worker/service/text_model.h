#pragma once

// What Generate asks of the text layer: a small interface over common/text, so that this folder's
// tests need no tokenizer. Implementations are immutable and used from several threads.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock {

// One output's ids to text, incrementally. Used by one thread at a time.
class TextStream {
 public:
  virtual ~TextStream() = default;
  // What this id makes printable, in whole characters.
  virtual std::string Append(int32_t token_id) = 0;
  // The text of a token that is not printed (a special one), for stop strings; else empty.
  virtual std::string Hidden(int32_t /*token_id*/) { return {}; }
  virtual std::string Flush() = 0;
};

struct ChatPrompt {
  std::string messages_json;
  std::string tools_json;            // or empty
  std::string template_kwargs_json;  // or empty
  bool add_generation_prompt = true;
  bool continue_final_message = false;
};

// From generation_config.json; what is unset is neutral.
struct SamplingDefaults {
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<int32_t> top_k;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
};

class TextModel {
 public:
  virtual ~TextModel() = default;
  virtual absl::StatusOr<std::vector<int32_t>> EncodeText(std::string_view text) const = 0;
  virtual absl::StatusOr<std::vector<int32_t>> EncodeChat(const ChatPrompt& chat) const = 0;
  virtual std::unique_ptr<TextStream> NewStream(bool keep_special_tokens) const = 0;
  virtual SamplingDefaults defaults() const = 0;
};

}  // namespace penstock
