#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/text/jinja/ast.h"

namespace penstock::jinja {

// Gives every name its slot, as jinja2's compiler gives it a Python variable: which scope a name
// belongs to is decided from the whole text, before anything runs. Also finds the filters and
// tests, and refuses what jinja2 or Python would refuse to compile. root_scope and num_slots are
// the template function's own.
absl::Status Resolve(Body* body, Scope* root_scope, int* num_slots);

}  // namespace penstock::jinja
