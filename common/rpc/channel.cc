#include "common/rpc/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/base/status.h"

namespace penstock {
namespace {

// Whether somebody accepts connections on the socket (then its path must not be taken over).
bool UnixSocketInUse(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const int result = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const bool in_use = result == 0 || errno == EAGAIN || errno == EINPROGRESS;
  close(fd);
  return in_use;
}

absl::Status CheckUnixPath(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return absl::OkStatus();
  if (!S_ISSOCK(info.st_mode)) {
    return Unavailable("cannot listen on unix:%s: the path exists and is not a socket", path);
  }
  if (UnixSocketInUse(path)) {
    return Unavailable("cannot listen on unix:%s: another process is listening there", path);
  }
  return absl::OkStatus();
}

}  // namespace

RunningServer::RunningServer() = default;
RunningServer::RunningServer(RunningServer&&) noexcept = default;
RunningServer& RunningServer::operator=(RunningServer&&) noexcept = default;
RunningServer::~RunningServer() = default;

std::shared_ptr<grpc::Channel> OpenChannel(const RpcAddress& address) {
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(kMaxRpcMessageBytes);
  args.SetMaxSendMessageSize(kMaxRpcMessageBytes);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  args.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxReconnectBackoffMs);
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address.ToString(), grpc::InsecureChannelCredentials(), args);
}

absl::StatusOr<RunningServer> StartServer(const RpcAddress& address,
                                          const std::vector<grpc::Service*>& services) {
  if (address.is_unix()) RETURN_IF_ERROR(CheckUnixPath(address.unix_path));
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMaxRpcMessageBytes);
  builder.SetMaxSendMessageSize(kMaxRpcMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Half the client's interval: a ping that comes early is no reason for GOAWAY.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kKeepaliveMs / 2);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  int port = -1;
  builder.AddListeningPort(address.ToString(), grpc::InsecureServerCredentials(), &port);
  for (grpc::Service* service : services) builder.RegisterService(service);

  RunningServer running;
  running.address = address;
  // The socket must never exist with a wider mode, not even for a moment.
  const mode_t old_mask = address.is_unix() ? umask(0177) : 0;
  running.server = builder.BuildAndStart();
  if (address.is_unix()) umask(old_mask);
  if (running.server == nullptr || (!address.is_unix() && port <= 0)) {
    return Unavailable(
        "cannot listen on %s: the address is taken, not of this machine, or not "
        "allowed",
        address.ToString());
  }
  if (!address.is_unix()) running.address.port = static_cast<uint16_t>(port);
  SetServing(*running.server, false);
  return running;
}

void SetServing(grpc::Server& server, bool serving) {
  if (grpc::HealthCheckServiceInterface* health = server.GetHealthCheckService()) {
    health->SetServingStatus(serving);
    health->SetServingStatus("penstock.v1.Worker", serving);
  }
}

}  // namespace penstock
