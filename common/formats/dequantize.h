#pragma once

// Every stored type back to f32, value by value as the formats define them. The plain reference
// that faster code is tested against, and what rarely read weights use.

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/formats/tensor.h"

namespace penstock {

float HalfToFloat(uint16_t bits);
float Bf16ToFloat(uint16_t bits);

// data holds whole blocks; out has exactly their number of values.
void Dequantize(DType type, std::span<const std::byte> data, std::span<float> out);

}  // namespace penstock
