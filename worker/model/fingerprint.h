#pragma once

// Tells whether two workers compute with the same weights: replicas with different prints never
// share a pool, a prefix cache or a resumed stream.
//
// Covered: every field of the spec; each tensor's name, type and shape; small tensors (up to 16 KB:
// norms, biases) whole, of larger ones eight pieces of 1 KB spread from the first byte to the last.
// Any training or conversion that touches a whole tensor therefore changes the print. Not covered:
// a change of single values between the pieces (a damaged disk; downloads are checked by sha256),
// and where or under which name the files lie. Reads 8 KB a tensor: milliseconds at any size.

#include <string>

#include "worker/model/model_spec.h"
#include "worker/model/weights.h"

namespace penstock {

// 64 hex digits. The same content in GGUF and in safetensors gives different prints.
std::string WeightsFingerprint(const ModelSpec& spec, const WeightSource& weights);

}  // namespace penstock
