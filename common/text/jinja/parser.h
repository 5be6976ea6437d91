#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/text/jinja/ast.h"

namespace penstock::jinja {

// The template's tree. Errors name line and column: InvalidArgument for wrong syntax,
// Unimplemented for Jinja's tags that are not supported.
absl::StatusOr<Body> Parse(std::string_view source);

}  // namespace penstock::jinja
