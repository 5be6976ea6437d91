#include "router/api/error_body.h"

#include "absl/strings/str_format.h"
#include "common/json/json_writer.h"

namespace penstock {
namespace {

std::string_view TypeOf(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "service_unavailable";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

void WriteErrorObject(const ApiError& error, std::string* out) {
  const auto string_or_null = [](JsonWriter& json, const std::string& text) {
    text.empty() ? json.Null() : json.String(text);
  };
  JsonWriter json(out);
  json.BeginObject().Key("error").BeginObject();
  json.Key("message").String(error.message);
  json.Key("type").String(TypeOf(error.status));
  json.Key("param");
  string_or_null(json, error.param);
  json.Key("code");
  string_or_null(json, error.code);
  json.EndObject().EndObject();
}

int HttpStatusOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

}  // namespace

ApiError BadField(std::string param, std::string message) {
  return ApiError{.message = std::move(message), .param = std::move(param)};
}

ApiError NotSupported(std::string param, std::string what) {
  return ApiError{.message = std::move(what) + " is not supported by this server yet",
                  .param = std::move(param),
                  .code = "unsupported_parameter"};
}

ApiError FromStatus(const absl::Status& status, std::string param) {
  ApiError error;
  error.status = HttpStatusOf(status);
  error.message = std::string(status.message());
  error.param = std::move(param);
  if (error.status == 429) error.code = "queue_full";
  if (error.status == 504) error.code = "deadline_exceeded";
  if (error.status == 429 || error.status == 503) error.retry_after_s = 1;
  return error;
}

std::string RenderErrorBody(const ApiError& error) {
  std::string body;
  WriteErrorObject(error, &body);
  return body;
}

HttpResponse ErrorResponse(const ApiError& error) {
  HttpResponse response;
  response.status = error.status;
  response.headers = error.headers;
  if (error.retry_after_s > 0) {
    response.headers.emplace_back("Retry-After", absl::StrFormat("%d", error.retry_after_s));
  }
  response.body = RenderErrorBody(error);
  return response;
}

std::string ErrorEvent(const ApiError& error) {
  std::string event = "data: ";
  WriteErrorObject(error, &event);
  event += "\n\n";
  return event;
}

}  // namespace penstock
