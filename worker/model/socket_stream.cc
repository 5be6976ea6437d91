#include "worker/model/socket_stream.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "common/base/status.h"

namespace penstock {

struct SocketStream::Tls {
  ~Tls() {
    SSL_free(ssl);
    SSL_CTX_free(context);
  }
  SSL_CTX* context = nullptr;
  SSL* ssl = nullptr;
};

namespace {

std::string TlsReason() {
  const unsigned long code = ERR_get_error();
  const char* text = code == 0 ? nullptr : ERR_reason_error_string(code);
  return text == nullptr ? "the connection was closed" : text;
}

bool IsAddress(const std::string& host) {
  unsigned char buffer[sizeof(struct in6_addr)];
  return inet_pton(AF_INET, host.c_str(), buffer) == 1 ||
         inet_pton(AF_INET6, host.c_str(), buffer) == 1;
}

}  // namespace

SocketStream::SocketStream(std::string host, std::string port, std::chrono::milliseconds timeout)
    : host_(std::move(host)), port_(std::move(port)), timeout_(timeout) {}

SocketStream::~SocketStream() {
  tls_.reset();
  if (socket_ >= 0) close(socket_);
}

absl::StatusOr<std::unique_ptr<SocketStream>> SocketStream::Connect(
    const std::string& host, const std::string& port, bool tls, std::chrono::milliseconds timeout) {
  std::unique_ptr<SocketStream> stream(new SocketStream(host, port, timeout));
  RETURN_IF_ERROR(stream->ConnectTcp());
  if (tls) RETURN_IF_ERROR(stream->StartTls());
  return stream;
}

absl::Status SocketStream::Error(const char* doing, const std::string& reason) const {
  return Unavailable("cannot %s %s:%s: %s", doing, host_, port_, reason);
}

absl::Status SocketStream::Wait(short events, const char* doing) const {
  struct pollfd waiting {
    socket_, events, 0
  };
  while (true) {
    const int ready = poll(&waiting, 1, static_cast<int>(timeout_.count()));
    if (ready > 0) return absl::OkStatus();
    if (ready == 0) return Error(doing, "timed out");
    if (errno != EINTR) return Error(doing, std::strerror(errno));
  }
}

absl::Status SocketStream::ConnectTcp() {
  struct addrinfo hints {};
  hints.ai_socktype = SOCK_STREAM;
  struct addrinfo* found = nullptr;
  const int looked_up = getaddrinfo(host_.c_str(), port_.c_str(), &hints, &found);
  if (looked_up != 0) return Error("look up", gai_strerror(looked_up));
  const std::unique_ptr<struct addrinfo, void (*)(struct addrinfo*)> addresses(found, freeaddrinfo);
  absl::Status last = Error("connect to", "no address");
  for (const struct addrinfo* at = found; at != nullptr; at = at->ai_next) {
    if (socket_ >= 0) close(socket_);
    socket_ = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, at->ai_protocol);
    if (socket_ < 0) return Error("connect to", std::strerror(errno));
    int error = connect(socket_, at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      last = Wait(POLLOUT, "connect to");
      if (!last.ok()) continue;
      socklen_t size = sizeof(error);
      getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) return absl::OkStatus();
    last = Error("connect to", std::strerror(error));
  }
  return last;
}

absl::Status SocketStream::TlsProgress(int result, const char* doing) const {
  switch (SSL_get_error(tls_->ssl, result)) {
    case SSL_ERROR_WANT_READ:
      return Wait(POLLIN, doing);
    case SSL_ERROR_WANT_WRITE:
      return Wait(POLLOUT, doing);
    default:
      return Error(doing, TlsReason());
  }
}

absl::Status SocketStream::StartTls() {
  tls_ = std::make_unique<Tls>();
  tls_->context = SSL_CTX_new(TLS_client_method());
  if (tls_->context == nullptr) return Error("start TLS with", TlsReason());
  SSL_CTX_set_min_proto_version(tls_->context, TLS1_2_VERSION);
  SSL_CTX_set_default_verify_paths(tls_->context);
  SSL_CTX_set_verify(tls_->context, SSL_VERIFY_PEER, nullptr);
  tls_->ssl = SSL_new(tls_->context);
  if (tls_->ssl == nullptr) return Error("start TLS with", TlsReason());
  const bool named = IsAddress(host_) ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls_->ssl),
                                                                      host_.c_str()) == 1
                                      : SSL_set1_host(tls_->ssl, host_.c_str()) == 1 &&
                                            SSL_set_tlsext_host_name(tls_->ssl, host_.c_str()) == 1;
  if (!named || SSL_set_fd(tls_->ssl, socket_) != 1) return Error("start TLS with", TlsReason());
  while (true) {
    ERR_clear_error();
    const int result = SSL_connect(tls_->ssl);
    if (result == 1) return absl::OkStatus();
    const long verified = SSL_get_verify_result(tls_->ssl);
    if (verified != X509_V_OK) {
      return FailedPrecondition(
          "the certificate of %s does not verify: %s (is ca-certificates installed? SSL_CERT_FILE "
          "names another bundle)",
          host_, X509_verify_cert_error_string(verified));
    }
    RETURN_IF_ERROR(TlsProgress(result, "start TLS with"));
  }
}

absl::Status SocketStream::Send(std::string_view data) {
  constexpr char kDoing[] = "send to";
  while (!data.empty()) {
    ssize_t sent = 0;
    if (tls_ != nullptr) {
      ERR_clear_error();
      sent = SSL_write(tls_->ssl, data.data(),
                       static_cast<int>(std::min<size_t>(data.size(), INT_MAX)));
      if (sent <= 0) RETURN_IF_ERROR(TlsProgress(static_cast<int>(sent), kDoing));
    } else {
      sent = send(socket_, data.data(), data.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EAGAIN) {
        RETURN_IF_ERROR(Wait(POLLOUT, kDoing));
      } else if (sent < 0 && errno != EINTR) {
        return Error(kDoing, std::strerror(errno));
      }
    }
    if (sent > 0) data.remove_prefix(static_cast<size_t>(sent));
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> SocketStream::Receive(char* out, size_t size) {
  constexpr char kDoing[] = "receive from";
  while (true) {
    if (tls_ != nullptr) {
      ERR_clear_error();
      const int got = SSL_read(tls_->ssl, out, static_cast<int>(std::min<size_t>(size, INT_MAX)));
      if (got > 0) return static_cast<size_t>(got);
      if (SSL_get_error(tls_->ssl, got) == SSL_ERROR_ZERO_RETURN) return size_t{0};
      RETURN_IF_ERROR(TlsProgress(got, kDoing));
      continue;
    }
    const ssize_t got = recv(socket_, out, size, 0);
    if (got >= 0) return static_cast<size_t>(got);
    if (errno == EAGAIN) {
      RETURN_IF_ERROR(Wait(POLLIN, kDoing));
    } else if (errno != EINTR) {
      return Error(kDoing, std::strerror(errno));
    }
  }
}

}  // namespace penstock
