#include "common/rpc/rpc_status.h"

#include <grpcpp/support/status.h>

#include <optional>

#include "absl/strings/cord.h"
#include "common/base/status.h"

namespace penstock {
namespace {

constexpr char kFieldPayload[] = "penstock.v1/field";
// Stands before the field's name in the status details.
constexpr std::string_view kDetailsMark = "penstock.v1:";

absl::StatusCode CodeOfForeignStatus(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::UNIMPLEMENTED:  // not a worker, or one of another version
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::PERMISSION_DENIED:
      return absl::StatusCode::kUnavailable;
    case grpc::StatusCode::CANCELLED:
      return absl::StatusCode::kCancelled;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return absl::StatusCode::kDeadlineExceeded;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status WithField(absl::Status status, std::string_view field) {
  if (!field.empty()) {
    status.SetPayload(kFieldPayload, absl::Cord(absl::string_view(field.data(), field.size())));
  }
  return status;
}

std::string FieldOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kFieldPayload);
  return payload.has_value() ? std::string(*payload) : std::string();
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message()),
          std::string(kDetailsMark) + FieldOf(status)};
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const std::string details = status.error_details();
  if (details.compare(0, kDetailsMark.size(), kDetailsMark) == 0) {
    return WithField(absl::Status(StatusCodeFromWire(status.error_code()), status.error_message()),
                     std::string_view(details).substr(kDetailsMark.size()));
  }
  return absl::Status(CodeOfForeignStatus(status.error_code()), status.error_message());
}

absl::StatusCode StatusCodeFromWire(int code) {
  const bool known = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown;
}

}  // namespace penstock
