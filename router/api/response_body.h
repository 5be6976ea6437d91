#pragma once

// The JSON of answers: whole objects, and stream events pre-rendered around the text that changes
// from token to token. Pure; one request's, used by one thread at a time.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "router/api/choice_output.h"
#include "router/api/logprobs_json.h"

namespace penstock {

// What every object of one answer shares.
struct AnswerInfo {
  bool chat = true;
  std::string id;  // "chatcmpl-..." or "cmpl-..."
  int64_t created = 0;
  std::string model;
  std::string fingerprint;
  bool include_usage = false;
  bool continuous_usage = false;
  bool logprobs = false;
  LogprobStyle style;
  bool return_token_ids = false;
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  std::optional<int64_t> cached_tokens;  // unknown when a choice was cut before its end came
};

// The events of one choice. Append... add whole events ("data: {...}\n\n").
class ChunkWriter {
 public:
  // info and text must outlive the writer. first_offset: characters of an echoed prompt.
  ChunkWriter(const AnswerInfo& info, const ServedText& text, int32_t index, int32_t first_offset);

  // The first event of a chat choice. prompt_ids: with return_token_ids, on the answer's first.
  void AppendRole(const std::vector<int32_t>* prompt_ids, const Usage& usage, std::string* out);
  // The usual token event: nothing but text.
  void AppendText(std::string_view delta, const Usage& usage, std::string* out) const;
  // With what logprobs and return_token_ids ask for. prompt_ids: of completions' first event.
  void AppendRecords(std::string_view delta, const std::vector<TokenRecord>& records,
                     const std::vector<int32_t>* prompt_ids, const Usage& usage,
                     std::string* out) const;
  void AppendEnd(const ChoiceEnd& end, const Usage& usage, std::string* out) const;

 private:
  void AppendTail(const Usage& usage, std::string* out) const;

  const AnswerInfo& info_;
  const ServedText& text_;
  const int32_t first_offset_;
  std::string open_;    // up to and with "index":N
  std::string before_;  // open_ and everything up to the text
  std::string after_;   // everything from the text to the usage
};

// The event with "choices":[] and the usage, just before [DONE].
void AppendUsageEvent(const AnswerInfo& info, const Usage& usage, std::string* out);

struct FinishedChoice {
  std::string text;
  std::vector<TokenRecord> records;
  ChoiceEnd end;
  const std::vector<int32_t>* prompt_ids = nullptr;
  int32_t first_offset = 0;  // characters of an echoed prompt
};

std::string RenderAnswer(const AnswerInfo& info, const std::vector<FinishedChoice>& choices,
                         const Usage& usage, const ServedText& text);

}  // namespace penstock
