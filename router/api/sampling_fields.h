#pragma once

// The request fields that chat and completions share: parsed, checked, typed. What is beyond this
// header knows no JSON. Plain values, any thread.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "router/api/field_reader.h"

namespace penstock {

// What the checks need to know of server and model.
struct FieldLimits {
  int32_t vocab_size = 0;
  int64_t max_choices = 1024;  // n times prompts
  int32_t max_logprobs = 20;   // -1 = the whole vocabulary
};

struct SamplingFields {
  std::string model;  // empty = the first served one
  // Unset: the model's generation defaults, then neutral.
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int64_t> top_k;  // 0 = off
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  double presence_penalty = 0;
  double frequency_penalty = 0;
  std::vector<std::pair<int32_t, float>> logit_bias;  // within +-100
  std::vector<int32_t> allowed_token_ids;
  std::optional<uint64_t> seed;
  int64_t n = 1;

  std::optional<int64_t> max_tokens;
  std::string max_tokens_field = "max_tokens";  // the name it was given by
  int64_t min_tokens = 0;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
  bool include_stop = false;
  bool ignore_eos = false;

  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  bool logprobs = false;
  int32_t top_logprobs = 0;  // how many alternatives to show
  bool echo = false;
  bool skip_special_tokens = true;
  std::optional<bool> add_special_tokens;
  bool return_token_ids = false;
  bool tokens_as_ids = false;                     // "token_id:N" in logprobs
  std::optional<int64_t> truncate_prompt_tokens;  // -1 = the context
  bool truncate_right = false;                    // keep the beginning

  int32_t priority = 0;
  std::string cache_salt;
  std::string request_id;
};

// Fills *out from the reader's object; errors stay in the reader.
void ReadSamplingFields(FieldReader& reader, const FieldLimits& limits, SamplingFields* out);

// top_logprobs within the server's limit; -1 becomes the vocabulary's size.
void CheckTopLogprobs(FieldReader& reader, std::string_view field, int64_t value,
                      const FieldLimits& limits, SamplingFields* out);

}  // namespace penstock
