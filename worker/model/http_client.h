#pragma once

// A small blocking HTTP/1.1 client for the hub: one request per connection, TLS with certificate
// and host name checks, streaming bodies. No redirects of its own. Any thread; no shared state.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace penstock {

struct Url {
  bool tls = true;
  std::string host;    // without brackets
  std::string port;    // "443"
  std::string target;  // "/path?query"

  // Only http and https.
  static absl::StatusOr<Url> Parse(std::string_view text);
  // An absolute or relative Location header seen at this URL.
  absl::StatusOr<Url> Resolve(std::string_view location) const;
  bool SameOrigin(const Url& other) const {
    return tls == other.tls && host == other.host && port == other.port;
  }
  std::string Text() const;    // without the query, which may hold signatures
  std::string Origin() const;  // "https://host" with the port when it is not the scheme's own
};

struct HttpRequest {
  std::string method = "GET";
  Url url;
  std::map<std::string, std::string> headers;
  // Nothing received for so long is Unavailable; connecting and the handshake have this long too.
  std::chrono::milliseconds idle_timeout{30000};
};

struct HttpHead {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case

  std::string Header(const std::string& lower_case_name) const;  // "" when absent
  std::optional<int64_t> ContentLength() const;
};

struct HttpHandler {
  // Called once; an error ends the request and is returned.
  std::function<absl::Status(const HttpHead&)> on_head;
  // The body's pieces as they arrive. May be null: the body is then not read.
  std::function<absl::Status(std::string_view)> on_body;
};

// Unavailable for anything the network did (names the host), also a body that ends early;
// FailedPrecondition for certificates that do not verify.
absl::Status HttpFetch(const HttpRequest& request, const HttpHandler& handler);

}  // namespace penstock
