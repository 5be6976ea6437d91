#include "router/api/context_limits.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace penstock {
namespace {

// a + b for counts that a client may have made enormous.
int64_t Sum(int64_t a, int64_t b) { return a > INT64_MAX - b ? INT64_MAX : a + b; }

}  // namespace

ApiError ContextLengthExceeded(int64_t limit, int64_t output_tokens, int64_t prompt_tokens,
                               const std::string& param) {
  ApiError error = BadField(
      param,
      absl::StrFormat("This model's maximum context length is %d tokens. However, you "
                      "requested %d output tokens and your prompt contains %d input tokens, "
                      "for a total of %d tokens. Please reduce the length of the input "
                      "prompt or the number of requested output tokens.",
                      limit, output_tokens, prompt_tokens, Sum(output_tokens, prompt_tokens)));
  error.code = "context_length_exceeded";
  return error;
}

std::optional<ApiError> CheckPromptBytes(size_t bytes, int32_t max_token_bytes, int64_t limit,
                                         const std::string& param) {
  if (max_token_bytes <= 0) return std::nullopt;
  const int64_t at_least = static_cast<int64_t>(bytes) / max_token_bytes;
  if (at_least <= limit) return std::nullopt;
  ApiError error = BadField(
      param, absl::StrFormat("This model's maximum context length is %d tokens. However, your "
                             "prompt contains %d bytes (more than %d, which is the upper bound for "
                             "%d input tokens). Please reduce the length of the input prompt.",
                             limit, bytes, limit * max_token_bytes, limit));
  error.code = "context_length_exceeded";
  return error;
}

ApiOr<int32_t> OutputTokens(const TokenBudget& budget) {
  const int64_t left = budget.limit - budget.prompt_tokens;
  const int64_t asked = budget.max_tokens.value_or(1);
  const bool fits = left >= std::min<int64_t>(asked, 1);
  if (!fits || (!budget.clamp && budget.max_tokens.has_value() && asked > left)) {
    return ContextLengthExceeded(budget.limit, asked, budget.prompt_tokens, budget.prompt_param);
  }
  if (budget.max_tokens.has_value()) return static_cast<int32_t>(std::min(asked, left));
  return static_cast<int32_t>(
      std::min(left, std::max<int64_t>(1, budget.model_default.value_or(left))));
}

}  // namespace penstock
