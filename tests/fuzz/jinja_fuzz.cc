// Any text as a chat template: it compiles or is refused, renders or fails, within its limits.

#include <cstdint>
#include <string>

#include "common/json/json.h"
#include "common/text/jinja/program.h"
#include "common/text/jinja/value.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using penstock::Json;
  if (size > 64 * 1024) return 0;
  const auto program =
      penstock::jinja::Program::Compile(std::string(reinterpret_cast<const char*>(data), size));
  if (!program.ok()) return 0;
  static const auto* const kVariables = new Json(*Json::Parse(
      R"({"messages": [{"role": "system", "content": " S "}, {"role": "user", "content": "héllo\n"},
          {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, 2.5, null]}}}]},
          {"role": "tool", "content": "r"}],
          "tools": [{"function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "array"}}}}}],
          "bos_token": "<s>", "n": 3, "s": "text", "l": [3, 1, 2], "d": {"k": "v"}})"));
  penstock::jinja::Variables variables;
  for (const penstock::JsonMember& member : kVariables->as_object()) {
    variables.emplace_back(member.key, penstock::jinja::FromJson(member.value, true));
  }
  penstock::jinja::RenderOptions options;
  options.limits.max_output_bytes = 1 << 18;
  options.limits.max_steps = 20'000;
  options.clock = [] { return std::tm{}; };
  const auto text = (*program)->Render(variables, options);
  if (!text.ok()) return 0;
  size_t at = 0;
  for (const auto& [begin, end] : text->user_ranges) {
    if (begin >= end || begin < at || end > text->text.size()) __builtin_trap();
    at = end;
  }
  return 0;
}
