#pragma once

// What one choice says: tokens in, visible text and token records out, up to the token at which the
// answer ends for the client. Stop strings, hidden stop tokens, text offsets and counts are decided
// here. Pure; used by one thread at a time.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/text/stop_matcher.h"
#include "router/api/served_text.h"
#include "router/pool/pool.h"

namespace penstock {

// One token with what logprobs and return_token_ids need of it.
struct TokenRecord {
  int32_t id = 0;
  int32_t text_offset = 0;  // characters of output text before it
  std::optional<GenerationLogprobs> logprobs;
};

// Why a choice ended, in OpenAI's words.
struct ChoiceEnd {
  const char* finish_reason = "stop";
  std::optional<int32_t> stop_id;  // stop_reason: one or none of these two
  std::optional<std::string> stop_string;
};

class ChoiceOutput {
 public:
  struct Options {
    std::vector<std::string> stops;
    bool include_stop = false;
    int32_t min_tokens = 0;
    std::vector<int32_t> eos_ids;         // empty with ignore_eos
    std::vector<int32_t> stop_token_ids;  // the client's
    // Stop strings that are one token and went down as ids too.
    std::vector<std::pair<int32_t, std::string>> stop_string_ids;
    bool skip_special = true;
    bool keep_records = false;
  };

  ChoiceOutput(std::shared_ptr<const ServedText> text, Options options);

  // Returns the text that may be shown now. After end() is set everything is ignored.
  std::string Push(int32_t id, int32_t index, std::optional<GenerationLogprobs> logprobs);
  // The worker said that the generation ended (not with kError): the rest of the text.
  std::string Finish(const GenerationFinish& finish);

  // Set when a stop string matched, or by Finish.
  const std::optional<ChoiceEnd>& end() const { return end_; }
  int32_t completion_tokens() const { return tokens_; }
  // Records since the last call (with keep_records).
  std::vector<TokenRecord> TakeRecords() { return std::exchange(records_, {}); }
  bool has_records() const { return !records_.empty(); }

 private:
  bool IsStopToken(int32_t id, int32_t index) const;
  std::string Show(std::string text, int32_t index, bool visible);
  void EndAtStop();

  const std::shared_ptr<const ServedText> text_;
  const Options options_;
  const std::unique_ptr<TextStream> stream_;
  StopMatcher matcher_;
  const bool match_;
  int32_t tokens_ = 0;
  int32_t decoded_chars_ = 0;
  std::vector<TokenRecord> records_;
  std::optional<ChoiceEnd> end_;
};

}  // namespace penstock
