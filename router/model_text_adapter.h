#pragma once

// ServedText over common/text: made from the files that a worker sent.

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "router/api/served_text.h"

namespace penstock {

struct ServedTextOptions {
  std::string chat_template;  // Jinja source instead of the model's, or empty
  bool trust_user_special_tokens = false;
};

// The error says what is wrong with which file.
absl::StatusOr<std::shared_ptr<const ServedText>> LoadServedText(const ServedModel& model,
                                                                 const ServedTextOptions& options);

}  // namespace penstock
