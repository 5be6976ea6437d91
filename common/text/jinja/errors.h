#pragma once

// Errors inside the engine. Python's exception types are told apart by status code, since filters
// and lookups catch some of them and not others; Program turns them into what callers see.

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"

namespace penstock::jinja {

#define PENSTOCK_JINJA_ERROR(name, code)                                            \
  inline constexpr absl::StatusCode k##name = absl::StatusCode::code;               \
  template <typename... Args>                                                       \
  absl::Status name(const absl::FormatSpec<Args...>& format, const Args&... args) { \
    return absl::Status(absl::StatusCode::code, absl::StrFormat(format, args...));  \
  }                                                                                 \
  static_assert(true)

PENSTOCK_JINJA_ERROR(TypeError, kInvalidArgument);
PENSTOCK_JINJA_ERROR(ValueError, kOutOfRange);
PENSTOCK_JINJA_ERROR(OverflowError, kDataLoss);
PENSTOCK_JINJA_ERROR(LookupError, kNotFound);
PENSTOCK_JINJA_ERROR(ZeroDivisionError, kUnknown);
PENSTOCK_JINJA_ERROR(UndefinedError, kFailedPrecondition);
PENSTOCK_JINJA_ERROR(SecurityError, kPermissionDenied);
PENSTOCK_JINJA_ERROR(TemplateRuntimeError, kInternal);
PENSTOCK_JINJA_ERROR(RaisedError, kAborted);           // raise_exception(...)
PENSTOCK_JINJA_ERROR(LimitError, kResourceExhausted);  // one of our limits
PENSTOCK_JINJA_ERROR(NotSupported, kUnimplemented);    // Jinja or Python has it, we do not

#undef PENSTOCK_JINJA_ERROR

// "TypeError", "UndefinedError" ... for messages.
const char* ErrorName(absl::StatusCode code);

}  // namespace penstock::jinja
