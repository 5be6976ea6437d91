#include "worker/model/rope_config.h"

#include <cmath>
#include <string>

#include "common/base/status.h"

namespace penstock {
namespace {

constexpr double kDefaultTheta = 10000.0;

// The longer context is a multiple of the original: a factor below 1 is a mistake.
absl::StatusOr<double> Factor(const ConfigReader& scaling) {
  ASSIGN_OR_RETURN(const double factor, scaling.PositiveNumber("factor"));
  if (factor < 1.0) {
    return InvalidArgument("%s is %g, expected 1 or more", scaling.Field("factor"), factor);
  }
  return factor;
}

// Without "factor", transformers takes the ratio of the two lengths.
absl::StatusOr<double> FactorOrRatio(const ConfigReader& scaling, int32_t original,
                                     int32_t max_position) {
  if (scaling.Has("factor")) return Factor(scaling);
  return static_cast<double>(max_position) / original;
}

absl::StatusOr<int32_t> OriginalLength(const ConfigReader& config, const ConfigReader& scaling,
                                       int32_t max_position) {
  constexpr char kKey[] = "original_max_position_embeddings";
  if (config.Has(kKey)) return config.Positive(kKey);  // it takes precedence, as in transformers
  return scaling.PositiveOr(kKey, max_position);
}

absl::Status ReadLlama3(const ConfigReader& scaling, RopeSpec* rope) {
  ASSIGN_OR_RETURN(rope->factor, Factor(scaling));
  ASSIGN_OR_RETURN(rope->low_freq_factor, scaling.PositiveNumber("low_freq_factor"));
  ASSIGN_OR_RETURN(rope->high_freq_factor, scaling.PositiveNumber("high_freq_factor"));
  if (rope->high_freq_factor <= rope->low_freq_factor) {
    return InvalidArgument("%s is %g, expected more than low_freq_factor %g",
                           scaling.Field("high_freq_factor"), rope->high_freq_factor,
                           rope->low_freq_factor);
  }
  return absl::OkStatus();
}

absl::Status ReadYarn(const ConfigReader& scaling, int32_t max_position, RopeSpec* rope) {
  ASSIGN_OR_RETURN(rope->factor, FactorOrRatio(scaling, rope->original_max_position, max_position));
  ASSIGN_OR_RETURN(rope->beta_fast, scaling.PositiveNumberOr("beta_fast", 32.0));
  ASSIGN_OR_RETURN(rope->beta_slow, scaling.PositiveNumberOr("beta_slow", 1.0));
  ASSIGN_OR_RETURN(rope->attention_factor, scaling.PositiveNumberOr("attention_factor", 0.0));
  ASSIGN_OR_RETURN(rope->mscale, scaling.PositiveNumberOr("mscale", 0.0));
  ASSIGN_OR_RETURN(rope->mscale_all_dim, scaling.PositiveNumberOr("mscale_all_dim", 0.0));
  ASSIGN_OR_RETURN(rope->truncate, scaling.BoolOr("truncate", true));
  if (rope->theta <= 1.0) {
    return InvalidArgument("%s is %g, yarn needs more than 1", scaling.Field("rope_theta"),
                           rope->theta);
  }
  return absl::OkStatus();
}

absl::Status ReadLongRope(const ConfigReader& scaling, int32_t max_position, RopeSpec* rope) {
  const auto pairs = static_cast<size_t>(rope->rotary_dim / 2);
  ASSIGN_OR_RETURN(rope->factor, FactorOrRatio(scaling, rope->original_max_position, max_position));
  ASSIGN_OR_RETURN(rope->short_factor, scaling.PositiveNumbers("short_factor", pairs));
  ASSIGN_OR_RETURN(rope->long_factor, scaling.PositiveNumbers("long_factor", pairs));
  ASSIGN_OR_RETURN(rope->attention_factor, scaling.PositiveNumberOr("attention_factor", 0.0));
  if (rope->original_max_position < 2) {
    return InvalidArgument("%s is %d, longrope needs more than 1",
                           scaling.Field("original_max_position_embeddings"),
                           rope->original_max_position);
  }
  return absl::OkStatus();
}

absl::StatusOr<RopeSpec::Kind> KindOf(const ConfigReader& scaling) {
  ASSIGN_OR_RETURN(std::optional<std::string> type, scaling.String("rope_type"));
  std::string key = "rope_type";
  if (!type.has_value()) {
    key = "type";
    ASSIGN_OR_RETURN(type, scaling.String("type"));
  }
  if (!type.has_value()) {
    // transformers 5 writes rope_parameters with rope_theta alone for unscaled models.
    if (!scaling.Has("factor")) return RopeSpec::Kind::kDefault;
    return InvalidArgument("%s is missing beside factor", scaling.Field("rope_type"));
  }
  if (*type == "default") return RopeSpec::Kind::kDefault;
  if (*type == "linear") return RopeSpec::Kind::kLinear;
  if (*type == "dynamic") return RopeSpec::Kind::kDynamicNtk;
  if (*type == "llama3") return RopeSpec::Kind::kLlama3;
  if (*type == "yarn") return RopeSpec::Kind::kYarn;
  if (*type == "longrope" || *type == "su") return RopeSpec::Kind::kLongRope;
  return Unimplemented(
      "%s is '%s', which is not supported (supported: default, linear, dynamic, llama3, yarn, "
      "longrope)",
      scaling.Field(key), *type);
}

absl::Status ReadScaling(const ConfigReader& config, const ConfigReader& scaling,
                         int32_t max_position, RopeSpec* rope) {
  if (rope->rotary_dim < 2 || rope->rotary_dim % 2 != 0) {
    return InvalidArgument("%s: RoPE rotates %d values a head, expected an even number",
                           config.name(), rope->rotary_dim);
  }
  ASSIGN_OR_RETURN(rope->kind, KindOf(scaling));
  switch (rope->kind) {
    case RopeSpec::Kind::kDefault:
      return absl::OkStatus();
    case RopeSpec::Kind::kLinear: {
      ASSIGN_OR_RETURN(rope->factor, Factor(scaling));
      return absl::OkStatus();
    }
    case RopeSpec::Kind::kDynamicNtk: {
      // Always max_position_embeddings: transformers does not read the original length here.
      ASSIGN_OR_RETURN(rope->factor, Factor(scaling));
      if (rope->rotary_dim > 2) return absl::OkStatus();
      return InvalidArgument("%s: dynamic RoPE scaling needs more than 2 rotated values",
                             config.name());
    }
    default:
      break;
  }
  ASSIGN_OR_RETURN(rope->original_max_position, OriginalLength(config, scaling, max_position));
  if (rope->kind == RopeSpec::Kind::kLlama3) return ReadLlama3(scaling, rope);
  if (rope->kind == RopeSpec::Kind::kYarn) return ReadYarn(scaling, max_position, rope);
  return ReadLongRope(scaling, max_position, rope);
}

}  // namespace

absl::StatusOr<RopeSpec> RopeFromConfig(const ConfigReader& config, int32_t head_dim,
                                        int32_t max_position) {
  const Json none{Json::Object{}};
  const Json* object = &none;
  std::string key = "rope_parameters";
  for (const char* candidate : {"rope_scaling", "rope_parameters"}) {
    const Json* value = config.Find(candidate);
    if (value == nullptr) continue;
    if (!value->is_object()) {
      return InvalidArgument("%s is %s, expected an object or null", config.Field(candidate),
                             value->type_name());
    }
    object = value;
    key = candidate;
    break;
  }
  for (const char* layer_type : {"full_attention", "sliding_attention"}) {
    if (object->Find(layer_type) != nullptr) {
      return Unimplemented("%s: RoPE per layer type is not supported",
                           config.Field(key + "." + layer_type));
    }
  }
  const ConfigReader scaling(*object, config.name(), key + ".");
  RopeSpec rope;
  const ConfigReader& theta_at = scaling.Has("rope_theta") ? scaling : config;
  ASSIGN_OR_RETURN(rope.theta, theta_at.PositiveNumberOr("rope_theta", kDefaultTheta));
  const ConfigReader& partial_at = scaling.Has("partial_rotary_factor") ? scaling : config;
  ASSIGN_OR_RETURN(const double partial, partial_at.PositiveNumberOr("partial_rotary_factor", 1.0));
  if (partial > 1.0) {
    return InvalidArgument("%s is %g, expected at most 1",
                           partial_at.Field("partial_rotary_factor"), partial);
  }
  rope.rotary_dim = static_cast<int32_t>(head_dim * partial);
  rope.original_max_position = max_position;
  RETURN_IF_ERROR(ReadScaling(config, scaling, max_position, &rope));
  return rope;
}

}  // namespace penstock
