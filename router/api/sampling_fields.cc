#include "router/api/sampling_fields.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "absl/strings/str_format.h"

namespace penstock {
namespace {

constexpr size_t kMaxStops = 16;
// The matcher holds a few dozen bytes for each of these.
constexpr size_t kMaxStopBytes = 1024;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Below this a temperature is raised to it: the division would lose all precision.
constexpr double kLowestTemperature = 0.01;

void ReadSampling(FieldReader& reader, SamplingFields* out) {
  out->temperature = reader.Number("temperature", 0, 2);
  if (out->temperature.value_or(0) > 0) {
    out->temperature = std::max(*out->temperature, kLowestTemperature);
  }
  out->top_p = reader.Number("top_p", 0, 1);
  out->top_k = reader.Int("top_k", -1, INT64_MAX);
  if (out->top_k.has_value()) out->top_k = std::clamp<int64_t>(*out->top_k, 0, INT32_MAX);
  out->min_p = reader.Number("min_p", 0, 1);
  out->repetition_penalty = reader.Number("repetition_penalty", 0, kInfinity, true);
  out->presence_penalty = reader.Number("presence_penalty", -2, 2).value_or(0);
  out->frequency_penalty = reader.Number("frequency_penalty", -2, 2).value_or(0);
  // -1 means "no seed", as in vLLM.
  if (const auto seed = reader.Int("seed"); seed.has_value() && *seed != -1) {
    out->seed = static_cast<uint64_t>(*seed);
  }
}

void ReadStops(FieldReader& reader, const FieldLimits& limits, SamplingFields* out) {
  const auto add = [&](const Json& item) {
    if (!item.is_string()) {
      return reader.Fail(
          "stop",
          absl::StrFormat("stop must be a string or a list of strings, got %s", ShowValue(item)));
    }
    const std::string& text = item.as_string();
    if (text.empty()) return reader.Fail("stop", "stop cannot contain an empty string.");
    if (text.size() > kMaxStopBytes) {
      return reader.Fail(
          "stop", absl::StrFormat("a stop string has %d bytes, at most %d are allowed", text.size(),
                                  kMaxStopBytes));
    }
    if (out->stop.size() == kMaxStops) {
      return reader.Fail("stop", absl::StrFormat("stop has more than %d strings", kMaxStops));
    }
    out->stop.push_back(text);
  };
  if (const Json* stop = reader.Get("stop")) {
    if (stop->is_array()) {
      for (const Json& item : stop->as_array()) {
        add(item);
        if (!reader.ok()) return;
      }
    } else {
      add(*stop);
    }
  }
  out->stop_token_ids = reader.TokenIds("stop_token_ids");
  for (const int32_t id : out->stop_token_ids) {
    if (id < limits.vocab_size) continue;
    reader.Fail("stop_token_ids",
                absl::StrFormat("stop_token_ids: %d is not below the vocabulary size %d", id,
                                limits.vocab_size));
    break;
  }
  out->include_stop = reader.Bool("include_stop_str_in_output").value_or(false);
  out->ignore_eos = reader.Bool("ignore_eos").value_or(false);
  out->min_tokens = reader.Int("min_tokens", 0, INT32_MAX).value_or(0);
}

void ReadLogitBias(FieldReader& reader, const FieldLimits& limits, SamplingFields* out) {
  const Json* bias = reader.Get("logit_bias");
  if (bias == nullptr) return;
  if (!bias->is_object()) {
    return reader.Fail(
        "logit_bias",
        absl::StrFormat("logit_bias must be an object of token ids and numbers, got %s",
                        ShowValue(*bias)));
  }
  for (const JsonMember& member : bias->as_object()) {
    int32_t id = -1;
    const std::string& key = member.key;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size()) {
      return reader.Fail(
          "logit_bias", "logit_bias contains key(s) that cannot be converted to integer token IDs");
    }
    if (id < 0 || id >= limits.vocab_size) {
      return reader.Fail(
          "logit_bias", absl::StrFormat("token_id(s) [%d] in logit_bias contain out-of-vocab token "
                                        "ids. Vocabulary size: %d",
                                        id, limits.vocab_size));
    }
    const std::optional<double> value = member.value.ToDouble();
    if (!value.has_value()) {
      return reader.Fail("logit_bias",
                         absl::StrFormat("logit_bias of token %d must be a number, got %s", id,
                                         ShowValue(member.value)));
    }
    out->logit_bias.emplace_back(id, static_cast<float>(std::clamp(*value, -100.0, 100.0)));
  }
}

void ReadAllowedIds(FieldReader& reader, const FieldLimits& limits, SamplingFields* out) {
  if (reader.Get("allowed_token_ids") == nullptr) return;
  out->allowed_token_ids = reader.TokenIds("allowed_token_ids");
  if (!reader.ok()) return;
  if (out->allowed_token_ids.empty()) {
    return reader.Fail("allowed_token_ids", "allowed_token_ids is not None and empty!");
  }
  const int32_t highest =
      *std::max_element(out->allowed_token_ids.begin(), out->allowed_token_ids.end());
  if (highest >= limits.vocab_size) {
    reader.Fail("allowed_token_ids",
                absl::StrFormat("allowed_token_ids contains out-of-vocab token id! %d is not below "
                                "the vocabulary size %d",
                                highest, limits.vocab_size));
  }
}

void ReadStreaming(FieldReader& reader, SamplingFields* out) {
  out->stream = reader.Bool("stream").value_or(false);
  const Json* options = reader.Get("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) {
    return reader.Fail("stream_options", absl::StrFormat("stream_options must be an object, got %s",
                                                         ShowValue(*options)));
  }
  if (!out->stream) {
    return reader.Fail("stream_options", "Stream options can only be defined when `stream=True`.");
  }
  FieldReader inner(*options, "stream_options.");
  out->include_usage = inner.Bool("include_usage").value_or(false);
  out->continuous_usage =
      inner.Bool("continuous_usage_stats").value_or(false) && out->include_usage;
  if (!inner.ok()) reader.Fail(inner.error());
}

void ReadOutputOptions(FieldReader& reader, SamplingFields* out) {
  out->echo = reader.Bool("echo").value_or(false);
  out->skip_special_tokens = reader.Bool("skip_special_tokens").value_or(true);
  // Decoders of today's tokenizers put no spaces there: both values mean the same.
  reader.Bool("spaces_between_special_tokens");
  out->add_special_tokens = reader.Bool("add_special_tokens");
  out->return_token_ids = reader.Bool("return_token_ids").value_or(false);
  out->tokens_as_ids = reader.Bool("return_tokens_as_token_ids").value_or(false);
  if (const auto count = reader.Int("truncate_prompt_tokens", -1, INT64_MAX)) {
    out->truncate_prompt_tokens = count;
    if (*count == 0) {
      reader.Fail("truncate_prompt_tokens",
                  "truncate_prompt_tokens must be at least 1, or -1 for the context, got 0");
    }
  }
  if (const auto side = reader.String("truncation_side")) {
    if (*side != "left" && *side != "right") {
      reader.Fail("truncation_side", "truncation_side must be \"left\" or \"right\"");
    }
    out->truncate_right = *side == "right";
  }
}

// It goes into a header and into the log.
void ReadRequestId(FieldReader& reader, SamplingFields* out) {
  out->request_id = reader.String("request_id").value_or("");
  const auto clean = [](char c) { return c > 0x20 && c < 0x7F && c != '"' && c != '\\'; };
  if (out->request_id.size() > 128 ||
      !std::all_of(out->request_id.begin(), out->request_id.end(), clean)) {
    reader.Fail("request_id",
                "request_id must be at most 128 printable ASCII characters without quotes, "
                "backslashes and spaces");
  }
}

}  // namespace

void ReadSamplingFields(FieldReader& reader, const FieldLimits& limits, SamplingFields* out) {
  out->model = reader.String("model").value_or("");
  ReadSampling(reader, out);
  ReadStops(reader, limits, out);
  ReadLogitBias(reader, limits, out);
  ReadAllowedIds(reader, limits, out);
  ReadStreaming(reader, out);
  ReadOutputOptions(reader, out);
  if (const auto n = reader.Int("n")) {
    out->n = *n;
    if (*n < 1) reader.Fail("n", absl::StrFormat("n must be at least 1, got %d.", *n));
    if (*n > limits.max_choices) {
      reader.Fail("n", absl::StrFormat("n must be at most %d, got %d.", limits.max_choices, *n));
    }
  }
  out->priority = static_cast<int32_t>(reader.Int("priority", INT32_MIN, INT32_MAX).value_or(0));
  if (const auto salt = reader.String("cache_salt")) {
    if (salt->empty()) reader.Fail("cache_salt", "cache_salt must be a non-empty string");
    out->cache_salt = *salt;
  }
  ReadRequestId(reader, out);
  reader.String("session_id");
}

void CheckTopLogprobs(FieldReader& reader, std::string_view field, int64_t value,
                      const FieldLimits& limits, SamplingFields* out) {
  const int64_t wanted = value == -1 ? limits.vocab_size : value;
  const int64_t allowed = limits.max_logprobs == -1 ? limits.vocab_size : limits.max_logprobs;
  if (wanted > allowed) {
    return reader.Fail(field, absl::StrFormat("Requested sample logprobs of %d, which is greater "
                                              "than max allowed: %d",
                                              wanted, allowed));
  }
  out->top_logprobs = static_cast<int32_t>(wanted);
}

}  // namespace penstock
