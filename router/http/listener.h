#pragma once

// Opening listening sockets. Plain system calls, no Asio.

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock {

struct ListeningSocket {
  int fd = -1;
  int family = 0;
};

// One socket for every address that host stands for ("" = all interfaces). *port 0 becomes the
// chosen one. FailedPrecondition says why not and what to do.
absl::StatusOr<std::vector<ListeningSocket>> ListenTcp(const std::string& host, int* port);
// A stale socket file is replaced, a live one is an error.
absl::StatusOr<ListeningSocket> ListenUnix(const std::string& path);

struct AcceptedSocket {
  int fd = -1;  // non-blocking, without Nagle's delay; -1: nothing to accept
  int error = 0;
  std::string peer;
};
AcceptedSocket AcceptOne(const ListeningSocket& listening);

}  // namespace penstock
