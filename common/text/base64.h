#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace penstock {

// RFC 4648, with its padding and nothing else; nullopt when text is anything else.
std::optional<std::string> DecodeBase64(std::string_view text);

}  // namespace penstock
