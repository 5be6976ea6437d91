#include "common/rpc/address.h"

#include <sys/un.h>

#include <charconv>

#include "common/base/status.h"

namespace penstock {
namespace {

constexpr std::string_view kUnixPrefix = "unix:";
constexpr size_t kMaxUnixPath = sizeof(sockaddr_un::sun_path) - 1;

absl::StatusOr<RpcAddress> ParseUnix(std::string_view path) {
  // "unix:///path" is gRPC's other spelling.
  if (path.substr(0, 2) == "//") path.remove_prefix(2);
  if (path.empty() || path[0] != '/') {
    return InvalidArgument("address 'unix:%s': the socket's path must be absolute", path);
  }
  if (path.size() > kMaxUnixPath) {
    return InvalidArgument(
        "address 'unix:%s': the path has %d bytes, the system allows %d; use a shorter directory",
        path, path.size(), kMaxUnixPath);
  }
  return RpcAddress{.unix_path = std::string(path)};
}

}  // namespace

std::string RpcAddress::ToString() const {
  if (is_unix()) return absl::StrFormat("unix:%s", unix_path);
  const bool ipv6 = host.find(':') != std::string::npos;
  return absl::StrFormat(ipv6 ? "[%s]:%d" : "%s:%d", host, port);
}

absl::StatusOr<RpcAddress> ParseRpcAddress(std::string_view text) {
  if (text.substr(0, kUnixPrefix.size()) == kUnixPrefix) {
    return ParseUnix(text.substr(kUnixPrefix.size()));
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) {
    return InvalidArgument("address '%s': expected HOST:PORT or unix:/PATH", text);
  }
  std::string_view host = text.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return InvalidArgument("address '%s': write an IPv6 address as [ADDRESS]:PORT", text);
  }
  const std::string_view digits = text.substr(colon + 1);
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    return InvalidArgument("address '%s': '%s' is not a port (0 to 65535)", text, digits);
  }
  return RpcAddress{.host = std::string(host), .port = port};
}

}  // namespace penstock
