#include "worker/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace penstock {
namespace {

using std::numbers::pi;

// theta^(2i/dim) for each pair.
std::vector<double> Periods(double theta, int32_t dim) {
  std::vector<double> periods(static_cast<size_t>(dim) / 2);
  for (size_t i = 0; i < periods.size(); ++i) {
    periods[i] = std::pow(theta, 2.0 * static_cast<double>(i) / dim);
  }
  return periods;
}

double DynamicTheta(const RopeSpec& rope, int64_t served_len) {
  const auto original = static_cast<double>(rope.original_max_position);
  const double length = std::max(static_cast<double>(served_len), original);
  const double dim = rope.rotary_dim;
  return rope.theta *
         std::pow(rope.factor * length / original - (rope.factor - 1.0), dim / (dim - 2.0));
}

// Long wavelengths are slowed by factor, short ones kept, those between blended.
double Llama3Frequency(const RopeSpec& rope, double frequency) {
  const double original = rope.original_max_position;
  const double wavelength = 2.0 * pi / frequency;
  if (wavelength < original / rope.high_freq_factor) return frequency;
  if (wavelength > original / rope.low_freq_factor) return frequency / rope.factor;
  const double smooth = (original / wavelength - rope.low_freq_factor) /
                        (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - smooth) * frequency / rope.factor + smooth * frequency;
}

// The pair (as a real number) that makes so many rotations over the original length.
double YarnPair(const RopeSpec& rope, double rotations) {
  return rope.rotary_dim * std::log(rope.original_max_position / (rotations * 2.0 * pi)) /
         (2.0 * std::log(rope.theta));
}

std::vector<double> YarnFrequencies(const RopeSpec& rope) {
  double low = YarnPair(rope, rope.beta_fast);
  double high = YarnPair(rope, rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rope.rotary_dim - 1.0);
  if (low == high) high += 0.001;
  std::vector<double> frequencies;
  for (const double period : Periods(rope.theta, rope.rotary_dim)) {
    const auto i = static_cast<double>(frequencies.size());
    const double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0);
    frequencies.push_back(ramp / (rope.factor * period) + (1.0 - ramp) / period);
  }
  return frequencies;
}

double YarnScale(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

double AttentionFactor(const RopeSpec& rope) {
  const bool scaled = rope.kind == RopeSpec::Kind::kYarn || rope.kind == RopeSpec::Kind::kLongRope;
  if (!scaled) return 1.0;
  if (rope.attention_factor > 0.0) return rope.attention_factor;
  if (rope.kind == RopeSpec::Kind::kYarn) {
    if (rope.mscale != 0.0 && rope.mscale_all_dim != 0.0) {
      return YarnScale(rope.factor, rope.mscale) / YarnScale(rope.factor, rope.mscale_all_dim);
    }
    return YarnScale(rope.factor, 1.0);
  }
  if (rope.factor <= 1.0) return 1.0;
  return std::sqrt(1.0 + std::log(rope.factor) / std::log(rope.original_max_position));
}

std::vector<double> Frequencies(const RopeSpec& rope, int64_t served_len) {
  if (rope.kind == RopeSpec::Kind::kYarn) return YarnFrequencies(rope);
  const bool dynamic = rope.kind == RopeSpec::Kind::kDynamicNtk;
  const double theta = dynamic ? DynamicTheta(rope, served_len) : rope.theta;
  std::vector<double> result = Periods(theta, rope.rotary_dim);
  const std::vector<double>& stretch =
      served_len > rope.original_max_position ? rope.long_factor : rope.short_factor;
  for (size_t i = 0; i < result.size(); ++i) {
    result[i] = 1.0 / result[i];
    if (rope.kind == RopeSpec::Kind::kLinear) result[i] /= rope.factor;
    if (rope.kind == RopeSpec::Kind::kLlama3) result[i] = Llama3Frequency(rope, result[i]);
    if (rope.kind == RopeSpec::Kind::kLongRope) result[i] /= stretch[i];
  }
  return result;
}

}  // namespace

RopeTable ComputeRope(const RopeSpec& rope, int32_t max_position, int64_t served_len) {
  RopeSpec resolved = rope;
  if (resolved.original_max_position == 0) resolved.original_max_position = max_position;
  RopeTable table;
  for (const double frequency : Frequencies(resolved, served_len)) {
    table.inv_freq.push_back(static_cast<float>(frequency));
  }
  table.attention_factor = static_cast<float>(AttentionFactor(resolved));
  return table;
}

int64_t RopeMaxPosition(const RopeSpec& rope, int32_t max_position) {
  if (rope.kind != RopeSpec::Kind::kYarn) return max_position;
  const int32_t original =
      rope.original_max_position == 0 ? max_position : rope.original_max_position;
  const double scaled = rope.factor * original;
  return std::max(static_cast<int64_t>(max_position), static_cast<int64_t>(scaled));
}

}  // namespace penstock
