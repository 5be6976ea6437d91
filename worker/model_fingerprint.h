#pragma once

// What tells whether two workers serve the same thing: a stream may move only between equals.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/service/service_context.h"

namespace penstock {

// Hash over the text assets, the weight files of `model` (size, first and last MiB; none when there
// is no such path) and `extra` (backend, format and whatever else changes the numbers). Hex.
absl::StatusOr<std::string> ModelFingerprint(const std::string& model,
                                             const std::vector<ModelAssetFile>& assets,
                                             const std::string& extra);

}  // namespace penstock
