#pragma once

#include <string_view>

#include "common/text/jinja/runtime.h"

namespace penstock::jinja {

Filter FindSequenceFilter(std::string_view name);

// Filters that jinja2 has and the engine has not: refused when a template is loaded.
bool IsUnsupportedFilter(std::string_view name);

}  // namespace penstock::jinja
