#pragma once

// A connected TCP socket, with TLS when asked for, and a deadline on every wait. One thread.

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace penstock {

class SocketStream {
 public:
  // Unavailable when the network fails or timeout passes without a byte; FailedPrecondition when
  // the certificate does not verify for this host.
  static absl::StatusOr<std::unique_ptr<SocketStream>> Connect(const std::string& host,
                                                               const std::string& port, bool tls,
                                                               std::chrono::milliseconds timeout);
  ~SocketStream();
  SocketStream(const SocketStream&) = delete;
  SocketStream& operator=(const SocketStream&) = delete;

  absl::Status Send(std::string_view data);
  // Waits for at least one byte; 0 at the end of the stream.
  absl::StatusOr<size_t> Receive(char* out, size_t size);

 private:
  struct Tls;

  SocketStream(std::string host, std::string port, std::chrono::milliseconds timeout);
  absl::Status ConnectTcp();
  absl::Status StartTls();
  absl::Status Wait(short events, const char* doing) const;
  absl::Status Error(const char* doing, const std::string& reason) const;
  // After a TLS call that returned `result`: OK to try again, or why not.
  absl::Status TlsProgress(int result, const char* doing) const;

  const std::string host_;
  const std::string port_;
  const std::chrono::milliseconds timeout_;
  int socket_ = -1;
  std::unique_ptr<Tls> tls_;
};

}  // namespace penstock
