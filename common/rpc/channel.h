#pragma once

// How Penstock's programs open gRPC channels and servers. Both ends take their limits, keepalive
// and backoff from here, because gRPC closes connections whose ends disagree about keepalive.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/rpc/address.h"

namespace grpc {
class Channel;
class Server;
class Service;
}  // namespace grpc

namespace penstock {

// Above the router's HTTP body limit (32 MiB by default), so that whatever passes there passes
// here.
inline constexpr int kMaxRpcMessageBytes = 128 << 20;
inline constexpr int kKeepaliveMs = 10'000;  // a ping after so much silence ...
inline constexpr int kKeepaliveTimeoutMs =
    5'000;  // ... and the connection is dead without an answer
inline constexpr int kMaxReconnectBackoffMs = 1'000;

// Connects lazily, and again by itself. Never shares a connection with another channel.
std::shared_ptr<grpc::Channel> OpenChannel(const RpcAddress& address);

struct RunningServer {
  std::unique_ptr<grpc::Server> server;
  RpcAddress address;  // with the port that was taken

  RunningServer();
  RunningServer(RunningServer&&) noexcept;
  RunningServer& operator=(RunningServer&&) noexcept;
  ~RunningServer();
};

// Serves the services with gRPC health checking (SERVING only when SetServing says so) and
// reflection. A Unix socket gets mode 0600; a stale one is replaced, one in use is refused.
// Errors: Unavailable when the address cannot be listened on.
absl::StatusOr<RunningServer> StartServer(const RpcAddress& address,
                                          const std::vector<grpc::Service*>& services);
void SetServing(grpc::Server& server, bool serving);

}  // namespace penstock
