#pragma once

// A GenerateRequest (ids, text or chat) to a Submit with everything explicit.

#include "absl/status/statusor.h"
#include "common/text/stop_matcher.h"
#include "worker/service/text_model.h"
#include "worker/service/wire.h"

namespace penstock {

namespace v1 {
class GenerateRequest;
class Submit;
}  // namespace v1

// Tokenizes and applies the template: call it on a text thread. text may be null (ids only).
// The result still has to pass Translate. Errors carry the field at fault.
absl::StatusOr<v1::Submit> PrepareSubmit(const v1::GenerateRequest& request, const TextModel* text,
                                         const RequestLimits& limits);

// The stop strings; InvalidArgument for an empty one, too many, or without a text layer.
absl::StatusOr<StopMatcher::Options> PrepareStops(const v1::GenerateRequest& request,
                                                  const TextModel* text);

}  // namespace penstock
