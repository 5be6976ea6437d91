#pragma once

// What tells whether two workers serve the same thing: a stream may move only between equals.

#include <string>
#include <string_view>
#include <vector>

#include "worker/service/service_context.h"

namespace penstock {

// Hash over the text assets, `weights` (WeightsFingerprint; empty where nothing is computed with
// any) and `extra` (backend, format and whatever else changes the numbers). Hex.
std::string ModelFingerprint(std::string_view weights, const std::vector<ModelAssetFile>& assets,
                             std::string_view extra);

}  // namespace penstock
