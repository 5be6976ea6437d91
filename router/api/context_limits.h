#pragma once

// Does it fit the model's context? Sums in 64 bits. Pure, any thread.

#include <cstdint>
#include <optional>
#include <string>

#include "router/api/error_body.h"

namespace penstock {

// 400 context_length_exceeded, in the words that agents match on.
ApiError ContextLengthExceeded(int64_t limit, int64_t output_tokens, int64_t prompt_tokens,
                               const std::string& param);

// A prompt of so many bytes is too long whatever its tokens are: known without tokenising.
// max_token_bytes: 0 = no such bound.
std::optional<ApiError> CheckPromptBytes(size_t bytes, int32_t max_token_bytes, int64_t limit,
                                         const std::string& param);

struct TokenBudget {
  int64_t limit = 0;  // of the context
  int64_t prompt_tokens = 0;
  std::optional<int64_t> max_tokens;     // asked for
  std::optional<int64_t> model_default;  // when nothing was asked for
  bool clamp = true;
  std::string prompt_param;
};
// How many tokens may be generated: at least one, or 0 when max_tokens is 0.
ApiOr<int32_t> OutputTokens(const TokenBudget& budget);

}  // namespace penstock
