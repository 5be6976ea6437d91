#pragma once

#include <cstdint>
#include <span>

#include "router/pool/pool.h"

namespace penstock {

namespace v1 {
class Submit;
}

// Every field explicit, as the worker wants it.
void FillSubmit(uint64_t id, const GenerationRequest& request, std::span<const int32_t> emitted,
                int64_t deadline_ms, v1::Submit* out);

}  // namespace penstock
