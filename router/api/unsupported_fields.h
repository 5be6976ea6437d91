#pragma once

// Fields of the OpenAI and vLLM surface that this server knows and cannot honour yet: asking for
// one is an error that says so, never silence. Values that ask for nothing (null, false, {}, the
// default) pass.

#include "router/api/field_reader.h"

namespace penstock {

enum class Endpoint { kChat, kCompletions };

void RefuseUnsupported(FieldReader& reader, Endpoint endpoint);

}  // namespace penstock
