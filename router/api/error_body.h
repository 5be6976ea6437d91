#pragma once

// The one place where failures become what a client reads: status, OpenAI's error object, headers.
// Plain values, any thread.

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "router/http/http.h"

namespace penstock {

struct ApiError {
  int status = 400;
  std::string message;
  std::string param;  // the request field at fault, or empty
  std::string code;   // "context_length_exceeded", ..., or empty
  int retry_after_s = 0;
  HttpHeaders headers = {};
};

// A value, or the error to answer with.
template <typename T>
class ApiOr {
 public:
  ApiOr(T value) : held_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  ApiOr(ApiError error) : held_(std::move(error)) {}  // NOLINT(google-explicit-constructor)
  bool ok() const { return held_.index() == 0; }
  T& value() { return std::get<0>(held_); }
  const T& value() const { return std::get<0>(held_); }
  ApiError& error() { return std::get<1>(held_); }
  const ApiError& error() const { return std::get<1>(held_); }

 private:
  std::variant<T, ApiError> held_;
};

ApiError BadField(std::string param, std::string message);
// A field that other servers have and this one does not, yet.
ApiError NotSupported(std::string param, std::string what);
// From a worker or a library: InvalidArgument 400, ResourceExhausted 429, Unavailable 503, ...
ApiError FromStatus(const absl::Status& status, std::string param = {});

// {"error":{"message","type","param","code"}}
std::string RenderErrorBody(const ApiError& error);
HttpResponse ErrorResponse(const ApiError& error);
// The same inside a stream: an event of its own, to be followed by [DONE].
std::string ErrorEvent(const ApiError& error);

}  // namespace penstock
