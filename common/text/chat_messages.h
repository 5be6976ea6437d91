#pragma once

// What happens to a chat's messages before and after the template sees them.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/json/json.h"
#include "common/text/marked_text.h"

namespace penstock {

// What a template can make of a message's content.
struct ContentForms {
  bool text = true;    // a string
  bool parts = false;  // a list of {"type": "text", "text": ...}
};

// Null members dropped, content as the template wants it, arguments parsed, reasoning under all its
// names; chat_template.h has the rules. InvalidArgument names message and field.
absl::StatusOr<Json> PrepareMessages(const Json& messages, ContentForms forms);

// The same reasoning under the names reasoning_content, thinking and reasoning.
Json AliasReasoning(const Json& messages);

// Calls in the messages whose arguments are still strings, and the messages with {} in their place.
int CountBrokenArguments(const Json& messages);
Json WithoutBrokenArguments(const Json& messages);

struct ContinuedField {
  std::string text;  // what the last message's field said
};

// Appends the marker to the last message's field (its last text part, or all names of its
// reasoning). InvalidArgument when there is nothing to go on from.
absl::StatusOr<ContinuedField> MarkContinuation(const std::string& field,
                                                const std::string& template_source, Json* messages);
// Cuts the rendered text where the marker stands.
absl::StatusOr<MarkedText> CutContinuation(MarkedText rendered, const ContinuedField& continued);

}  // namespace penstock
