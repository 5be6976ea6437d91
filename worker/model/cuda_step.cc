#include "worker/model/cuda_step.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"

namespace penstock {
namespace {

constexpr size_t kAlignment = 16;

struct Place {
  size_t at = 0;
  size_t Take(int64_t count, size_t item_bytes) {
    const size_t here = at;
    at += static_cast<size_t>(count) * item_bytes;
    at = (at + kAlignment - 1) / kAlignment * kAlignment;
    return here;
  }
};

template <typename T>
T* At(std::byte* buffer, size_t offset) {
  return reinterpret_cast<T*>(buffer + offset);
}

// Where the rows' tokens and entries go.
struct Cursor {
  int32_t decode = 0;
  int32_t prefill = 0;
  int32_t prefill_token = 0;
  int32_t last = 0;
};

void PackTables(const StepInput& input, size_t row_index, const CudaStep& step, int32_t first_token,
                int32_t block_size, const Cursor& at, std::byte* buffer) {
  const StepRow& row = input.rows()[row_index];
  const CudaStepShape& shape = step.shape;
  for (int32_t g = 0; g < shape.num_groups; ++g) {
    const std::span<const BlockId> blocks = input.row_blocks(row_index, static_cast<size_t>(g));
    const auto first = static_cast<int32_t>(blocks.data() - input.blocks().data());
    auto* tables = row.num_tokens == 1
                       ? At<int32_t>(buffer, step.layout.decode_tables) + g * shape.num_decode
                       : At<int32_t>(buffer, step.layout.prefill_tables) + g * shape.num_prefill;
    tables[row.num_tokens == 1 ? at.decode : at.prefill] = first;
    auto* slots = At<int64_t>(buffer, step.layout.kv_slots) +
                  static_cast<int64_t>(g) * shape.num_tokens + first_token;
    for (int32_t i = 0; i < row.num_tokens; ++i) {
      const int32_t position = row.start_position + i;
      const auto block = static_cast<size_t>(position / block_size);
      slots[i] = static_cast<int64_t>(Value(blocks[block])) * block_size + position % block_size;
    }
  }
}

void PackRow(const StepInput& input, size_t row_index, int32_t block_size, Cursor* at,
             std::byte* buffer, CudaStep* step) {
  const StepRow& row = input.rows()[row_index];
  const CudaStepLayout& layout = step->layout;
  const bool decode = row.num_tokens == 1;
  const int32_t first_token = decode ? at->decode : at->prefill_token;
  auto* ids = At<int32_t>(buffer, layout.ids) + first_token;
  auto* positions = At<int32_t>(buffer, layout.positions) + first_token;
  if (row.token_offset < 0) {
    ids[0] = -Value(row.slot);
  } else {
    std::memcpy(ids, input.token_ids().data() + row.token_offset,
                static_cast<size_t>(row.num_tokens) * sizeof(TokenId));
  }
  for (int32_t i = 0; i < row.num_tokens; ++i) positions[i] = row.start_position + i;
  PackTables(input, row_index, *step, first_token, block_size, *at, buffer);
  if (row.logits == LogitsKind::kLast) {
    At<int32_t>(buffer, layout.last)[at->last] = first_token + row.num_tokens - 1;
    const bool samples = row.output_index >= 0;
    At<int32_t>(buffer, layout.row_slots)[at->last] = samples ? Value(row.slot) : 0;
    At<int32_t>(buffer, layout.output_indices)[at->last] = std::max(row.output_index, 0);
    if (samples) step->sampled.push_back({row.slot, row.output_index, at->last});
    ++at->last;
  }
  if (decode) {
    const int32_t length = row.start_position + 1;
    At<int32_t>(buffer, layout.seq_lens)[at->decode++] = length;
    step->max_seq_len = std::max(step->max_seq_len, length);
  } else {
    At<int32_t>(buffer, layout.token_begin)[at->prefill] = first_token;
    At<int32_t>(buffer, layout.start_pos)[at->prefill++] = row.start_position;
    at->prefill_token += row.num_tokens;
    step->max_new_tokens = std::max(step->max_new_tokens, row.num_tokens);
  }
}

void PackPadding(const CudaStepShape& shape, const CudaStepLayout& layout, const Cursor& at,
                 std::byte* buffer) {
  for (int32_t i = at.decode; i < shape.num_decode; ++i) {
    At<int32_t>(buffer, layout.ids)[i] = 0;
    At<int32_t>(buffer, layout.positions)[i] = 0;
    At<int32_t>(buffer, layout.seq_lens)[i] = 0;
    for (int32_t g = 0; g < shape.num_groups; ++g) {
      At<int64_t>(buffer, layout.kv_slots)[static_cast<int64_t>(g) * shape.num_tokens + i] = -1;
      At<int32_t>(buffer, layout.decode_tables)[g * shape.num_decode + i] = 0;
    }
  }
  for (int32_t i = at.last; i < shape.num_last; ++i) {
    At<int32_t>(buffer, layout.last)[i] = 0;
    At<int32_t>(buffer, layout.row_slots)[i] = 0;
    At<int32_t>(buffer, layout.output_indices)[i] = 0;
  }
}

}  // namespace

CudaStepLayout LayoutOf(const CudaStepShape& s) {
  Place place;
  CudaStepLayout layout;
  layout.ids = place.Take(s.num_tokens, 4);
  layout.positions = place.Take(s.num_tokens, 4);
  layout.last = place.Take(s.num_last, 4);
  layout.row_slots = place.Take(s.num_last, 4);
  layout.output_indices = place.Take(s.num_last, 4);
  layout.seq_lens = place.Take(s.num_decode, 4);
  layout.token_begin = place.Take(s.num_prefill + 1, 4);
  layout.start_pos = place.Take(s.num_prefill, 4);
  layout.kv_slots = place.Take(int64_t{s.num_groups} * s.num_tokens, 8);
  layout.decode_tables = place.Take(int64_t{s.num_groups} * s.num_decode, 4);
  layout.prefill_tables = place.Take(int64_t{s.num_groups} * s.num_prefill, 4);
  layout.blocks = place.at;
  return layout;
}

CudaStepShape ShapeOf(const StepInput& input) {
  CudaStepShape shape{.num_tokens = input.num_tokens(), .num_groups = input.num_groups()};
  for (const StepRow& row : input.rows()) {
    ++(row.num_tokens == 1 ? shape.num_decode : shape.num_prefill);
    if (row.logits == LogitsKind::kLast) ++shape.num_last;
  }
  return shape;
}

size_t MaxStepBytes(int32_t max_tokens, int32_t max_rows, int32_t num_groups,
                    int64_t max_blocks_per_row) {
  const CudaStepShape most = {.num_tokens = max_tokens + max_rows,
                              .num_decode = max_rows,
                              .num_prefill = max_rows,
                              .num_last = max_rows,
                              .num_groups = num_groups};
  return LayoutOf(most).blocks +
         static_cast<size_t>(max_blocks_per_row * max_rows * num_groups) * sizeof(BlockId);
}

void PackStep(const StepInput& input, const CudaStepShape& shape, int32_t block_size,
              std::byte* buffer, CudaStep* step) {
  step->shape = shape;
  step->layout = LayoutOf(shape);
  step->bytes = step->layout.blocks + input.blocks().size_bytes();
  step->max_new_tokens = 0;
  step->max_seq_len = 0;
  step->sampled.clear();
  Cursor at = {.prefill_token = shape.num_decode};
  for (size_t i = 0; i < input.rows().size(); ++i) {
    PackRow(input, i, block_size, &at, buffer, step);
  }
  CHECK(at.decode <= shape.num_decode && at.prefill == shape.num_prefill);
  CHECK(at.last <= shape.num_last && at.prefill_token == shape.num_tokens);
  At<int32_t>(buffer, step->layout.token_begin)[at.prefill] = at.prefill_token;
  PackPadding(shape, step->layout, at, buffer);
  if (!input.blocks().empty()) {
    std::memcpy(buffer + step->layout.blocks, input.blocks().data(), input.blocks().size_bytes());
  }
}

}  // namespace penstock
