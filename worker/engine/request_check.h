#pragma once

// Turns a submitted request into a sequence, or says which field is wrong. Runs on the submitter's
// thread.

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "worker/engine/engine.h"
#include "worker/engine/sequence.h"

namespace penstock {

// InvalidArgument starts with the field's name.
absl::Status CheckRequest(const EngineRequest& request, const EngineLimits& limits);

// Checks, sorts the id lists, and hashes the full blocks (none with an empty fingerprint pointer:
// prefix caching off).
absl::StatusOr<std::unique_ptr<Sequence>> MakeSequence(EngineRequest request,
                                                       const EngineLimits& limits,
                                                       const std::string* model_fingerprint);

}  // namespace penstock
