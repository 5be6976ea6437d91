#pragma once

// What a worker hands to routers of its model: the files of the text layer, and the fingerprint
// that tells whether two workers serve the same thing.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/service/service_context.h"

namespace penstock {

// Of a GGUF file: a GGUF without tensors ("model.gguf"). Of a directory: its tokenizer, template
// and configuration files, or a GGUF without tensors when that is what lies in it. Errors: NotFound
// when there is no such path; FailedPrecondition when nothing in it can tokenize.
absl::StatusOr<std::vector<ModelAssetFile>> LoadTextAssets(const std::string& model);

// Hash over the text assets, the weight files (name, size, first and last MiB) and `extra` (dtype
// and whatever else changes the numbers). Hex.
absl::StatusOr<std::string> ModelFingerprint(const std::string& model,
                                             const std::vector<ModelAssetFile>& assets,
                                             const std::string& extra);

}  // namespace penstock
