#pragma once

// What a handler sees of HTTP: plain requests and a writer. Sockets stay in router/http.
// Threads: a connection lives on one io thread; its handler, exchange and callbacks run only there.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "router/pool/pool.h"

namespace penstock {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "POST"
  std::string path;    // percent-decoded once, dot segments resolved, slashes folded: "/v1/models"
  std::string query;
  HttpHeaders headers;      // names in lower case
  std::string body;         // as sent (content_coding.h decodes it), within the limit
  std::string peer;         // "127.0.0.1:51234"
  int64_t received_ns = 0;  // steady clock, when the head was complete

  // First value of a header (lower-case name), or empty.
  std::string_view header(std::string_view name) const {
    for (const auto& [key, value] : headers) {
      if (key == name) return value;
    }
    return {};
  }
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  HttpHeaders headers;  // {"connection", "close"} ends the connection after it
  std::string body;
};

// One request's way back. Either Send once, or StartStream, WriteStream..., EndStream.
// Handed to the handler as a shared_ptr; usable until the response ended or the client left (then
// every call is a no-op).
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual const HttpRequest& request() const = 0;
  // For moving the body out.
  virtual HttpRequest& mutable_request() = 0;
  // The io thread this exchange lives on: for posting back to it.
  virtual IoExecutor& executor() = 0;
  virtual void Send(HttpResponse response) = 0;
  // 200 text/event-stream with no-cache, X-Accel-Buffering: no; headers leave at once. The
  // connection sends comment lines while the stream is silent.
  virtual void StartStream(HttpHeaders headers) = 0;
  // Whole events ("data: ...\n\n"). Tries a direct non-blocking send, queues what did not fit.
  virtual void WriteStream(std::string_view events) = 0;
  virtual void EndStream() = 0;
  // Bytes written by WriteStream that the client has not taken yet.
  virtual size_t pending_bytes() const = 0;
  // Calls back once, on the io thread and never from inside this call, when pending_bytes is low
  // again: rendering may go on.
  virtual void OnDrained(std::function<void()> callback) = 0;
  // Called once when the client is gone or the write timeout passed: cancel the work.
  virtual void OnClientGone(std::function<void()> callback) = 0;
};

// Called on the io thread for every complete request. Everything about routes, keys and errors is
// its business; framing errors (400, 408, 413, 431, ...) are answered by router/http before it.
using HttpHandler = std::function<void(std::shared_ptr<HttpExchange>)>;

// What router/http asks of its user. Called on io threads, so from several at once.
struct HttpHooks {
  HttpHandler handler;
  // The answer to a framing error. request is what is known of it, or null.
  std::function<HttpResponse(const HttpRequest* request, int status, const std::string& message)>
      error;
  // Looks at a head before its body is read: an answer here refuses the request.
  std::function<std::optional<HttpResponse>(const HttpRequest& head)> check_head;
};

}  // namespace penstock
