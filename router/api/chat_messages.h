#pragma once

// The messages of a chat, checked and brought into one form for the template layer: content is a
// string or a list of text parts, never null; members that are null or empty lists of calls are
// left out. Pure, any thread.

#include "common/json/json.h"
#include "router/api/error_body.h"

namespace penstock {

ApiOr<Json> NormalizeMessages(const Json& messages);

// Bytes of all strings inside: what the text of a prompt amounts to at least.
size_t StringBytes(const Json& value);

}  // namespace penstock
