#include "router/api/unsupported_fields.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace penstock {
namespace {

// How a value says that nothing is asked for, beside null.
enum class Neutral { kNothing, kFalse, kTrue, kEmpty, kOne, kNumber };

struct Field {
  std::string_view name;
  Neutral neutral;
};

constexpr auto kCommon = std::to_array<Field>({
    {"prompt_logprobs", Neutral::kNothing},
    {"bad_words", Neutral::kEmpty},
    {"logprob_token_ids", Neutral::kEmpty},
    {"use_beam_search", Neutral::kFalse},
    {"length_penalty", Neutral::kNumber},
    {"best_of", Neutral::kOne},
    {"structured_outputs", Neutral::kEmpty},
    {"guided_json", Neutral::kNothing},
    {"guided_regex", Neutral::kNothing},
    {"guided_choice", Neutral::kNothing},
    {"guided_grammar", Neutral::kNothing},
    {"kv_transfer_params", Neutral::kEmpty},
    {"ec_transfer_params", Neutral::kEmpty},
    {"vllm_xargs", Neutral::kEmpty},
    {"repetition_detection", Neutral::kEmpty},
    {"thinking_token_budget", Neutral::kNothing},
    {"stream_interval", Neutral::kOne},
    {"return_prompt_text", Neutral::kFalse},
});

constexpr auto kChatOnly = std::to_array<Field>({
    {"functions", Neutral::kEmpty},
    {"function_call", Neutral::kNothing},
    {"include_reasoning", Neutral::kTrue},
    {"media_io_kwargs", Neutral::kEmpty},
    {"mm_processor_kwargs", Neutral::kEmpty},
    {"return_assistant_tokens_mask", Neutral::kFalse},
    {"audio", Neutral::kEmpty},
});

constexpr auto kCompletionsOnly = std::to_array<Field>({
    {"prompt_embeds", Neutral::kNothing},
    {"suffix", Neutral::kEmpty},
});

bool AsksForNothing(const Json& value, Neutral neutral) {
  switch (neutral) {
    case Neutral::kNothing:
      return false;
    case Neutral::kFalse:
      return value.is_bool() && !value.as_bool();
    case Neutral::kTrue:
      return value.is_bool() && value.as_bool();
    case Neutral::kEmpty:
      return (value.is_array() && value.as_array().empty()) ||
             (value.is_object() && value.as_object().empty()) ||
             (value.is_string() && value.as_string().empty());
    case Neutral::kOne:
      return value.is_integer() && value.ToInt64() == 1;
    case Neutral::kNumber:  // without effect unless another field is set
      return value.is_number();
  }
  return false;
}

template <size_t N>
void Refuse(FieldReader& reader, const std::array<Field, N>& fields) {
  for (const Field& field : fields) {
    const Json* value = reader.Get(field.name);
    if (value == nullptr || AsksForNothing(*value, field.neutral)) continue;
    const std::string name(field.name);
    return reader.Fail(NotSupported(name, "`" + name + "`"));
  }
}

void RefuseResponseFormat(FieldReader& reader) {
  const Json* format = reader.Get("response_format");
  if (format == nullptr) return;
  const Json* type = format->Find("type");
  if (type == nullptr || !type->is_string()) {
    return reader.Fail("response_format", "response_format must be an object with a string `type`");
  }
  const std::string& name = type->as_string();
  if (name == "text") return;
  const auto known = {"json_object", "json_schema", "structural_tag"};
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    return reader.Fail("response_format",
                       "response_format.type must be one of text, json_object, json_schema and "
                       "structural_tag");
  }
  if (name == "json_schema" &&
      reader.object().Find("response_format")->Find("json_schema") == nullptr) {
    return reader.Fail("response_format",
                       "When response_format type is 'json_schema', the 'json_schema' field must "
                       "be provided.");
  }
  reader.Fail(NotSupported("response_format",
                           "`response_format` of type " + name + " (structured output)"));
}

void RefuseTools(FieldReader& reader) {
  const Json* tools = reader.Get("tools");
  const Json* choice = reader.Get("tool_choice");
  if (tools != nullptr && !tools->is_array()) {
    return reader.Fail("tools", "tools must be a list of functions, got " + ShowValue(*tools));
  }
  reader.Bool("parallel_tool_calls");
  const bool no_choice =
      choice == nullptr || (choice->is_string() && choice->as_string() == "none");
  if (tools == nullptr || tools->as_array().empty()) {
    const bool is_auto = choice != nullptr && choice->is_string() && choice->as_string() == "auto";
    if (!no_choice && !is_auto) {
      reader.Fail("tool_choice", "When using `tool_choice`, `tools` must be set.");
    }
    return;
  }
  reader.Fail(NotSupported("tools", "`tools` (tool calling)"));
}

}  // namespace

void RefuseUnsupported(FieldReader& reader, Endpoint endpoint) {
  Refuse(reader, kCommon);
  RefuseResponseFormat(reader);
  if (endpoint == Endpoint::kCompletions) return Refuse(reader, kCompletionsOnly);
  Refuse(reader, kChatOnly);
  RefuseTools(reader);
}

}  // namespace penstock
