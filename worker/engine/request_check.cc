#include "worker/engine/request_check.h"

#include <algorithm>
#include <cmath>

#include "common/base/status.h"

namespace penstock {
namespace {

absl::Status CheckIds(const char* field, std::span<const TokenId> ids, int32_t vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size) {
      return InvalidArgument("%s: id %d at index %d is not in the model's vocabulary (0 to %d)",
                             field, ids[i], i, vocab_size - 1);
    }
  }
  return absl::OkStatus();
}

// Written so that NaN fails.
absl::Status CheckRange(const char* field, float value, double low, double high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return InvalidArgument("%s: %g is not between %g and %g", field, value, low, high);
}

absl::Status CheckLengths(const EngineRequest& r, const EngineLimits& limits) {
  if (r.prompt_ids.empty()) return InvalidArgument("prompt_ids: the prompt is empty");
  if (r.max_tokens < 1) {
    return InvalidArgument("max_tokens: %d must be at least 1", r.max_tokens);
  }
  // In 64 bits: max_tokens may be near 2^31.
  const int64_t total = static_cast<int64_t>(r.prompt_ids.size()) + r.max_tokens;
  if (total > limits.max_model_len) {
    return InvalidArgument(
        "max_tokens: %d prompt tokens and max_tokens %d are %d together, but the model's context "
        "is "
        "%d tokens; shorten the prompt or ask for fewer",
        r.prompt_ids.size(), r.max_tokens, total, limits.max_model_len);
  }
  if (static_cast<int64_t>(r.output_ids.size()) > r.max_tokens) {
    return InvalidArgument("output_token_ids: %d replayed tokens are more than max_tokens %d",
                           r.output_ids.size(), r.max_tokens);
  }
  if (r.sampling.min_tokens < 0 || r.sampling.min_tokens > r.max_tokens) {
    return InvalidArgument("min_tokens: %d is not between 0 and max_tokens %d",
                           r.sampling.min_tokens, r.max_tokens);
  }
  return absl::OkStatus();
}

absl::Status CheckSampling(const SamplingParams& s, int32_t vocab_size) {
  RETURN_IF_ERROR(CheckRange("temperature", s.temperature, 0, 100));
  RETURN_IF_ERROR(CheckRange("top_p", s.top_p, 0, 1));
  RETURN_IF_ERROR(CheckRange("min_p", s.min_p, 0, 1));
  RETURN_IF_ERROR(CheckRange("presence_penalty", s.presence_penalty, -2, 2));
  RETURN_IF_ERROR(CheckRange("frequency_penalty", s.frequency_penalty, -2, 2));
  if (!(s.repetition_penalty > 0) || !std::isfinite(s.repetition_penalty)) {
    return InvalidArgument("repetition_penalty: %g must be above 0", s.repetition_penalty);
  }
  if (s.top_k < 0) return InvalidArgument("top_k: %d must be 0 (off) or more", s.top_k);
  for (const auto& [id, bias] : s.logit_bias) {
    RETURN_IF_ERROR(CheckIds("logit_bias", {&id, 1}, vocab_size));
    if (!std::isfinite(bias)) {
      return InvalidArgument("logit_bias: %g for id %d is not a finite number", bias, id);
    }
  }
  RETURN_IF_ERROR(CheckIds("allowed_token_ids", s.allowed_token_ids, vocab_size));
  if (s.top_logprobs < -1 || s.top_logprobs > vocab_size) {
    return InvalidArgument("top_logprobs: %d is not between 0 and %d", s.top_logprobs, vocab_size);
  }
  return absl::OkStatus();
}

void SortUnique(std::vector<TokenId>* ids) {
  std::sort(ids->begin(), ids->end());
  ids->erase(std::unique(ids->begin(), ids->end()), ids->end());
}

}  // namespace

absl::Status CheckRequest(const EngineRequest& r, const EngineLimits& limits) {
  RETURN_IF_ERROR(CheckLengths(r, limits));
  RETURN_IF_ERROR(CheckIds("prompt_ids", r.prompt_ids, limits.vocab_size));
  RETURN_IF_ERROR(CheckIds("output_token_ids", r.output_ids, limits.vocab_size));
  RETURN_IF_ERROR(CheckSampling(r.sampling, limits.vocab_size));
  if (r.adapter_id >= 0 && r.adapter_identity.empty()) {
    return InvalidArgument("adapter_id: adapter %d has no identity", r.adapter_id);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Sequence>> MakeSequence(EngineRequest request,
                                                       const EngineLimits& limits,
                                                       const std::string* model_fingerprint) {
  RETURN_IF_ERROR(CheckRequest(request, limits));
  auto s = std::make_unique<Sequence>();
  s->num_prompt = static_cast<int32_t>(request.prompt_ids.size());
  s->tokens = std::move(request.prompt_ids);
  request.prompt_ids.clear();
  // Room for what will be sampled, so that steps do not allocate.
  s->tokens.reserve(s->tokens.size() + static_cast<size_t>(request.max_tokens));
  s->tokens.insert(s->tokens.end(), request.output_ids.begin(), request.output_ids.end());
  request.output_ids = {};
  SortUnique(&request.eos_ids);
  SortUnique(&request.stop_token_ids);
  s->end_ids = request.eos_ids;
  s->end_ids.insert(s->end_ids.end(), request.stop_token_ids.begin(), request.stop_token_ids.end());
  SortUnique(&s->end_ids);
  request.sampling.eos_and_stop_ids =
      request.sampling.min_tokens > 0 ? s->end_ids : std::vector<TokenId>{};
  s->id = request.id;
  s->max_tokens = request.max_tokens;
  s->min_tokens = request.sampling.min_tokens;
  s->adapter_id = request.adapter_id;
  if (model_fingerprint != nullptr) {
    BlockHasher hasher;
    s->root = hasher.Root({.model_fingerprint = *model_fingerprint,
                           .salt = request.cache_salt,
                           .adapter_identity = request.adapter_identity});
    hasher.Extend(s->root, s->tokens, limits.block_size, &s->chain);
  }
  s->request = std::move(request);
  return s;
}

}  // namespace penstock
