#pragma once

// A strict HTTP/1.x request parser (RFC 9112): whatever two parsers could read differently is an
// error, so that nothing can be smuggled past a proxy. Pure: bytes in, a request or an error out.
// Used by one thread at a time.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "router/http/http.h"

namespace penstock {

struct HttpLimits {
  size_t max_head_bytes = 64 << 10;
  size_t max_headers = 128;
  uint64_t max_body_bytes = 32 << 20;
};

class RequestParser {
 public:
  enum class Event {
    kNeedMore,
    kHead,   // the head is complete; call Feed again for the body
    kDone,   // the request is complete
    kError,  // error_status() and error_message(); the connection cannot be used any more
  };

  explicit RequestParser(HttpLimits limits) : limits_(limits) {}

  // Takes bytes from the front of *input (what it took is removed).
  Event Feed(std::string_view* input);
  // Begins the next request.
  void Reset();

  // Complete from kHead on, the body from kDone on. May be moved out after kDone.
  HttpRequest& request() { return request_; }
  bool keep_alive() const { return keep_alive_; }
  bool http_1_0() const { return http_1_0_; }
  bool expects_continue() const { return expects_continue_; }
  bool has_body() const { return chunked_ || body_left_ > 0; }
  // Announced by Content-Length; the maximum for chunked.
  uint64_t announced_bytes() const { return chunked_ ? UINT64_MAX : body_left_; }
  // From now on the body is read but not kept.
  void DiscardBody() { discard_ = true; }
  // Nothing of a request has come yet.
  bool idle() const { return state_ == State::kHead && head_.empty(); }

  int error_status() const { return error_status_; }
  const std::string& error_message() const { return error_message_; }

 private:
  enum class State { kHead, kBody, kChunkSize, kChunkData, kChunkEnd, kTrailer, kDone, kError };

  Event Fail(int status, std::string message);
  Event FeedHead(std::string_view* input);
  Event FeedBody(std::string_view* input);
  Event FeedChunkSize(std::string_view* input);
  Event FeedChunkEnd(std::string_view* input);
  Event FeedTrailer(std::string_view* input);
  bool TakeLine(std::string_view* input);
  Event ParseHead(std::string_view head);
  bool ParseRequestLine(std::string_view line);
  bool ParseHeader(std::string_view line);
  bool CheckFraming();
  bool CheckContentLength(std::string_view value);
  void CheckConnection(std::string_view value);
  void Keep(std::string_view bytes);

  const HttpLimits limits_;
  State state_ = State::kHead;
  HttpRequest request_;
  std::string head_;  // raw, until it is complete
  std::string line_;  // an incomplete chunk line
  bool http_1_0_ = false;
  bool keep_alive_ = true;
  bool expects_continue_ = false;
  bool chunked_ = false;
  bool discard_ = false;
  uint64_t body_left_ = 0;   // of the body, or of the current chunk
  uint64_t body_bytes_ = 0;  // so far
  size_t trailer_bytes_ = 0;
  int error_status_ = 0;
  std::string error_message_;
};

// Percent-decodes once, resolves "." and "..", folds duplicate slashes and drops the trailing one.
// False for a broken escape or an encoded control character.
bool NormalizePath(std::string_view raw, std::string* out);

}  // namespace penstock
