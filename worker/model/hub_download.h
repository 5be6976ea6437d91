#pragma once

// One file of the hub into the cache: resumed, checked, linked, and safe against other processes
// that fetch the same.

#include "absl/status/status.h"
#include "worker/model/hub_api.h"
#include "worker/model/hub_cache.h"
#include "worker/model/hub_progress.h"

namespace penstock {

// Bytes of the file that are still to come over the network.
int64_t MissingBytes(const HubCache& cache, const HubFile& file);

absl::Status DownloadFile(const HubApi& api, const HubCache& cache, const std::string& commit,
                          const HubFile& file, HubProgress* progress);

}  // namespace penstock
