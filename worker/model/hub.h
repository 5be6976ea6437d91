#pragma once

// MODEL on the command line -> files on this machine. A folder or file is used as it is; a hub id
// ("org/name", or "org/name:variant" for a GGUF) is fetched into the cache that huggingface_hub
// uses, once, and never again for the same commit. Blocking; call it before serving.

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace penstock {

struct HubOptions {
  std::string cache;     // the folder of models--org--name
  std::string endpoint;  // "https://huggingface.co"
  std::string token;     // sent to the endpoint only; empty = none
  bool offline = false;
  bool terminal = false;                         // a progress bar rather than lines
  std::function<void(std::string_view)> output;  // progress and notices; null = none
  int max_attempts = 6;                          // in a row without a byte of progress
  std::chrono::milliseconds backoff{1000};       // doubles up to 16 times
  std::chrono::milliseconds idle_timeout{30000};
};

// HF_HOME, HF_HUB_CACHE, HF_TOKEN, HF_TOKEN_PATH, HF_ENDPOINT, HF_HUB_OFFLINE and their older
// names, as huggingface_hub reads them; the token file is read here. lookup is getenv.
absl::StatusOr<HubOptions> HubOptionsFromEnvironment(
    const std::function<const char*(const char*)>& lookup);

struct ModelLocation {
  std::string path;    // a folder or a GGUF file
  std::string name;    // the hub id, or the folder's or file's own name
  std::string commit;  // of the hub; empty for local files
};

// revision: branch, tag or commit; empty = main. Errors say what to do: NotFound (no such path,
// repository, revision or file), PermissionDenied (gated, or a token is missing or wrong),
// Unavailable (the network, after retries), ResourceExhausted (disk), DataLoss (the content's
// sha256 is not the announced one), InvalidArgument, Unimplemented.
absl::StatusOr<ModelLocation> ResolveModel(const std::string& model, const std::string& revision,
                                           const HubOptions& options);

// What describes the model without its weights, for plan and bench: a config.json, a folder or a
// GGUF. Of a hub id only the small files are fetched (of a GGUF repository the whole file).
absl::StatusOr<std::string> ResolveConfig(const std::string& model, const std::string& revision,
                                          const HubOptions& options);

}  // namespace penstock
