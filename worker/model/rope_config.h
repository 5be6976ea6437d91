#pragma once

// The RoPE part of config.json: rope_parameters, or rope_theta and rope_scaling with type or
// rope_type.

#include "absl/status/statusor.h"
#include "worker/model/config_reader.h"
#include "worker/model/model_spec.h"

namespace penstock {

absl::StatusOr<RopeSpec> RopeFromConfig(const ConfigReader& config, int32_t head_dim,
                                        int32_t max_position);

}  // namespace penstock
