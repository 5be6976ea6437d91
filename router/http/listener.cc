#include "router/http/listener.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "common/base/status.h"

namespace penstock {
namespace {

constexpr int kBacklog = 4096;

absl::Status BindError(const std::string& where, int error) {
  const char* remedy = "";
  if (error == EADDRINUSE) {
    remedy = ": another process listens there; stop it or choose another --port";
  } else if (error == EACCES) {
    remedy = ": not allowed; ports below 1024 need privileges, choose another --port";
  } else if (error == EADDRNOTAVAIL) {
    remedy = ": no network interface of this machine has that address; check --host";
  }
  return FailedPrecondition("cannot listen on %s: %s%s", where, strerror(error), remedy);
}

int PortOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

std::string PeerName(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, text, sizeof text);
    return absl::StrFormat("%s:%d", text, PortOf(address));
  }
  if (address.ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, text,
              sizeof text);
    return absl::StrFormat("[%s]:%d", text, PortOf(address));
  }
  return "unix";
}

void SetPort(addrinfo* info, int port) {
  if (info->ai_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(info->ai_addr)->sin6_port = htons(static_cast<uint16_t>(port));
  } else {
    reinterpret_cast<sockaddr_in*>(info->ai_addr)->sin_port = htons(static_cast<uint16_t>(port));
  }
}

// The errno, or 0 with *out open.
int Listen(int family, const sockaddr* address, socklen_t size, ListeningSocket* out) {
  const int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const int on = 1;
  if (family != AF_UNIX) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  if (bind(fd, address, size) != 0 || listen(fd, kBacklog) != 0) {
    const int error = errno;
    close(fd);
    return error;
  }
  *out = {fd, family};
  return 0;
}

}  // namespace

absl::StatusOr<std::vector<ListeningSocket>> ListenTcp(const std::string& host, int* port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* raw = nullptr;
  if (const int error = getaddrinfo(host.empty() ? nullptr : host.c_str(), "0", &hints, &raw);
      error != 0) {
    return FailedPrecondition("cannot resolve --host '%s': %s", host, gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(raw, freeaddrinfo);
  std::vector<ListeningSocket> sockets;
  int last_error = 0;
  for (addrinfo* info = raw; info != nullptr; info = info->ai_next) {
    if (info->ai_family != AF_INET && info->ai_family != AF_INET6) continue;
    SetPort(info, *port);
    ListeningSocket listening;
    const int error = Listen(info->ai_family, info->ai_addr, info->ai_addrlen, &listening);
    if (error == EADDRINUSE) {
      for (const ListeningSocket& s : sockets) close(s.fd);
      return BindError(absl::StrFormat("%s port %d", host.empty() ? "*" : host, *port), error);
    }
    // A machine may lack IPv6 while its names still resolve to it.
    if (error != 0) {
      last_error = error;
      continue;
    }
    sockets.push_back(listening);
    sockaddr_storage bound = {};
    socklen_t size = sizeof bound;
    getsockname(listening.fd, reinterpret_cast<sockaddr*>(&bound), &size);
    *port = PortOf(bound);
  }
  if (sockets.empty()) {
    return BindError(absl::StrFormat("%s port %d", host.empty() ? "*" : host, *port), last_error);
  }
  return sockets;
}

absl::StatusOr<ListeningSocket> ListenUnix(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return FailedPrecondition("--uds '%s' is longer than the %d bytes that a Unix socket may have",
                              path, sizeof address.sun_path - 1);
  }
  memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool live = probe >= 0 && connect(probe, generic, sizeof address) == 0;
  const bool stale = !live && errno == ECONNREFUSED;
  if (probe >= 0) close(probe);
  if (live) return FailedPrecondition("cannot listen on %s: another process listens there", path);
  // Connecting to a plain file is refused just as to a socket without a listener.
  struct stat file = {};
  if (lstat(path.c_str(), &file) == 0 && !S_ISSOCK(file.st_mode)) {
    return FailedPrecondition("cannot listen on %s: a file that is no socket is there", path);
  }
  if (stale) unlink(path.c_str());
  ListeningSocket listening;
  if (const int error = Listen(AF_UNIX, generic, sizeof address, &listening); error != 0) {
    return FailedPrecondition("cannot listen on %s: %s", path, strerror(error));
  }
  return listening;
}

AcceptedSocket AcceptOne(const ListeningSocket& listening) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  AcceptedSocket accepted;
  accepted.fd = accept4(listening.fd, reinterpret_cast<sockaddr*>(&address), &size,
                        SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (accepted.fd < 0) {
    accepted.error = errno;
    return accepted;
  }
  if (listening.family != AF_UNIX) {
    const int on = 1;
    setsockopt(accepted.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(accepted.fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  }
  accepted.peer = PeerName(address);
  return accepted;
}

}  // namespace penstock
