#pragma once

// Between absl::Status and what crosses the wire. A status of ours is told from one that gRPC made
// itself (a lost connection, a message over the limit): only ours may become a client's 4xx.

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace grpc {
class Status;
}

namespace penstock {

// The request field at fault travels with a status as a payload.
absl::Status WithField(absl::Status status, std::string_view field);
// The field, or "" when none was named.
std::string FieldOf(const absl::Status& status);

// Marks the status as ours (in its details) and keeps code, message and field.
grpc::Status ToGrpcStatus(const absl::Status& status);
// A status of ours comes back as it was. One that gRPC made becomes Unavailable (the connection, a
// worker that lacks the method), DeadlineExceeded, Cancelled or Internal (everything else), so that
// it never looks like "too many requests" or like the client's fault.
absl::Status FromGrpcStatus(const grpc::Status& status);

// A code as it stands in Finish.status_code; an unknown number becomes kUnknown.
absl::StatusCode StatusCodeFromWire(int code);

}  // namespace penstock
