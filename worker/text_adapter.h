#pragma once

// The text layer (common/text) as Generate uses it.

#include <memory>

#include "absl/status/statusor.h"
#include "common/text/model_text.h"
#include "worker/service/text_model.h"

namespace penstock {

// Compiles the chat templates. Errors name the template, line and column.
absl::StatusOr<std::shared_ptr<const TextModel>> MakeTextModel(ModelText text);

}  // namespace penstock
