#pragma once

// Where a worker listens: "unix:/path/of/socket" or "host:port" ("[::1]:port" for IPv6).

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace penstock {

struct RpcAddress {
  std::string unix_path;  // absolute; empty = TCP
  std::string host;
  uint16_t port = 0;  // 0 = any free one (servers only)

  bool is_unix() const { return !unix_path.empty(); }
  // The form that gRPC and our own flags take.
  std::string ToString() const;
};

// InvalidArgument says what is wrong and what is accepted.
absl::StatusOr<RpcAddress> ParseRpcAddress(std::string_view text);

}  // namespace penstock
