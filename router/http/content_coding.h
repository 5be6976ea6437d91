#pragma once

// Compressed request bodies. Pure functions, any thread.

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace penstock {

// Undoes Content-Encoding. Unimplemented for a coding other than gzip, zstd and identity,
// ResourceExhausted when the decoded size is above max_bytes, InvalidArgument for damaged data.
absl::StatusOr<std::string> DecodeContent(std::string_view coding, std::string body,
                                          uint64_t max_bytes);

}  // namespace penstock
