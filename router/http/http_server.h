#pragma once

// The HTTP/1.1 listener: N io threads, a connection lives and dies on one of them. Create binds,
// Start serves, Stop ends everything. Control calls come from one thread (main).

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "router/http/http.h"
#include "router/http/request_parser.h"

namespace penstock {

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  int port = 8000;  // 0 = any free one
  std::string uds;  // listen on this Unix socket instead
  int threads = 1;
  HttpLimits limits;
  // What a coarse sweep enforces.
  std::chrono::milliseconds sweep_interval{500};
  std::chrono::milliseconds head_timeout{30'000};    // from a head's first byte to its last
  std::chrono::milliseconds body_timeout{60'000};    // without a byte of the body
  std::chrono::milliseconds idle_timeout{75'000};    // between requests
  std::chrono::milliseconds write_timeout{60'000};   // without a byte accepted by the client
  std::chrono::milliseconds sse_keep_alive{15'000};  // of silence before a comment; 0 = never
};

class HttpServer {
 public:
  virtual ~HttpServer() = default;

  // FailedPrecondition when the address cannot be listened on (says why and what to do).
  static absl::StatusOr<std::unique_ptr<HttpServer>> Create(HttpServerOptions options);

  virtual void Start(HttpHooks hooks) = 0;
  // The TCP port, or 0 for a Unix socket.
  virtual int port() const = 0;
  // From now on every connection ends after its current response.
  virtual void StopKeepAlive() = 0;
  // Closes listener and connections, joins the threads. Handlers' client-gone callbacks run.
  virtual void Stop() = 0;
};

}  // namespace penstock
