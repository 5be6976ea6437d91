#include "worker/model/cpu_step.h"

namespace penstock {

void SinCos(double angle, double* sin, double* cos) {
  // Subtract the nearest multiple n of pi/2 in three parts, each product exact for n < 2^24.
  const double scaled = angle * 0.63661977236758134308;
  const auto n = static_cast<int64_t>(scaled + (scaled < 0 ? -0.5 : 0.5));
  const auto x = static_cast<double>(n);
  double r = angle - x * 1.57079632673412561417e+00;
  r -= x * 6.07710050630396597660e-11;
  r -= x * 2.02226624879595063154e-21;
  // Taylor series on [-pi/4, pi/4]: the first term left out is below 1e-15.
  const double r2 = r * r;
  const double s =
      r + r * r2 *
              (-1.0 / 6 +
               r2 * (1.0 / 120 +
                     r2 * (-1.0 / 5040 + r2 * (1.0 / 362880 + r2 * (-1.0 / 39916800 +
                                                                    r2 * (1.0 / 6227020800.0))))));
  const double c =
      1.0 +
      r2 * (-0.5 + r2 * (1.0 / 24 +
                         r2 * (-1.0 / 720 +
                               r2 * (1.0 / 40320 +
                                     r2 * (-1.0 / 3628800 + r2 * (1.0 / 479001600.0 +
                                                                  r2 * (-1.0 / 87178291200.0)))))));
  switch (n & 3) {
    case 0:
      *sin = s;
      *cos = c;
      return;
    case 1:
      *sin = c;
      *cos = -s;
      return;
    case 2:
      *sin = -s;
      *cos = -c;
      return;
    default:
      *sin = -c;
      *cos = s;
  }
}

void UnpackRow(const StepInput& input, size_t row_index, int32_t block_size, CpuStep* step) {
  const StepRow& row = input.rows()[row_index];
  const auto first_token = static_cast<int32_t>(step->positions.size());
  for (int32_t i = 0; i < row.num_tokens; ++i) step->positions.push_back(row.start_position + i);
  if (row.logits == LogitsKind::kLast) step->last.push_back(first_token + row.num_tokens - 1);
  for (size_t g = 0; g < step->groups.size(); ++g) {
    CpuStep::Group& group = step->groups[g];
    const size_t table = group.blocks.size();
    for (const BlockId id : input.row_blocks(row_index, g)) group.blocks.push_back(Value(id));
    group.sequences.push_back({.first_token = first_token,
                               .num_tokens = row.num_tokens,
                               .start_position = row.start_position,
                               .blocks = group.blocks.data() + table});
    for (int32_t i = 0; i < row.num_tokens; ++i) {
      const int32_t position = row.start_position + i;
      group.token_block.push_back(group.blocks[table + static_cast<size_t>(position / block_size)]);
      group.token_offset.push_back(position % block_size);
    }
  }
}

void FillAngles(const RopeTable& rope, CpuStep* step) {
  const size_t half = rope.inv_freq.size();
  step->cos.resize(step->positions.size() * half);
  step->sin.resize(step->positions.size() * half);
  const auto factor = static_cast<double>(rope.attention_factor);
  for (size_t t = 0; t < step->positions.size(); ++t) {
    for (size_t i = 0; i < half; ++i) {
      // The angle is rounded to f32, as every other implementation of these models does.
      const float angle = static_cast<float>(step->positions[t]) * rope.inv_freq[i];
      double s = 0;
      double c = 1;
      SinCos(static_cast<double>(angle), &s, &c);
      step->cos[t * half + i] = static_cast<float>(c * factor);
      step->sin[t * half + i] = static_cast<float>(s * factor);
    }
  }
}

}  // namespace penstock
