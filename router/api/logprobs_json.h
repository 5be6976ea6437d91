#pragma once

// Log probabilities in the two shapes of OpenAI's API. Pure, any thread.

#include <string>
#include <vector>

#include "router/api/choice_output.h"
#include "router/api/served_text.h"

namespace penstock {

struct LogprobStyle {
  int32_t top = 0;             // alternatives to show
  bool tokens_as_ids = false;  // "token_id:N" instead of the token's text
};

// {"content":[{"token","logprob","bytes","top_logprobs"}, ...]}: the value of a chat choice's
// "logprobs".
void AppendChatLogprobs(const std::vector<TokenRecord>& records, const ServedText& text,
                        const LogprobStyle& style, std::string* out);

// {"text_offset","token_logprobs","tokens","top_logprobs"}: the same for completions. Offsets count
// characters, from first_offset.
void AppendCompletionLogprobs(const std::vector<TokenRecord>& records, const ServedText& text,
                              const LogprobStyle& style, int32_t first_offset, std::string* out);

// [1,2,3]
void AppendIds(const std::vector<TokenRecord>& records, std::string* out);

}  // namespace penstock
