#pragma once

// One step's input as the GPU reads it: a flat buffer that one copy brings there. Plain host code.
//
// The GPU's order of tokens: first the rows of one token (decode attention), then the others'
// (prefill attention). Offsets depend on the shape alone, so that a captured graph of a padded
// shape finds everything in its place; the block lists, of any length, come last.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/engine/step.h"

namespace penstock {

struct CudaStepShape {
  int32_t num_tokens = 0;   // decode rows and all prefill tokens
  int32_t num_decode = 0;   // rows of one token
  int32_t num_prefill = 0;  // other rows
  int32_t num_last = 0;     // rows with logits
  int32_t num_groups = 1;
};

// Byte offsets into the buffer. Entries "of group g" are at offset + g * stride.
struct CudaStepLayout {
  size_t ids = 0;             // int32 [num_tokens]; -slot = what the slot sampled last
  size_t positions = 0;       // int32 [num_tokens]
  size_t last = 0;            // int32 [num_last]: token of each row with logits, in row order
  size_t row_slots = 0;       // int32 [num_last]: 0 = the row does not sample
  size_t output_indices = 0;  // int32 [num_last]
  size_t seq_lens = 0;        // int32 [num_decode]
  size_t token_begin = 0;     // int32 [num_prefill + 1]
  size_t start_pos = 0;       // int32 [num_prefill]
  size_t kv_slots = 0;        // int64 [num_groups][num_tokens]
  size_t decode_tables = 0;   // int32 [num_groups][num_decode]: first entry in blocks
  size_t prefill_tables = 0;  // int32 [num_groups][num_prefill]
  size_t blocks = 0;          // int32 [any number]
};
CudaStepLayout LayoutOf(const CudaStepShape& shape);

// What the host remembers of a row that samples: its place among the rows with logits.
struct CudaSampledRow {
  SlotId slot = kPaddingSlot;
  int32_t output_index = 0;
  int32_t last = 0;
};

struct CudaStep {
  CudaStepShape shape;  // as packed, padding included
  CudaStepLayout layout;
  size_t bytes = 0;                     // of the buffer that are used
  int32_t max_new_tokens = 0;           // of a prefill row
  int32_t max_seq_len = 0;              // of a decode row, the new token included
  std::vector<CudaSampledRow> sampled;  // in row order
};

CudaStepShape ShapeOf(const StepInput& input);

// The buffer's bytes that any step within these limits fits in.
size_t MaxStepBytes(int32_t max_tokens, int32_t max_rows, int32_t num_groups,
                    int64_t max_blocks_per_row);

// Packs input into buffer. shape is ShapeOf(input), or with more decode rows and rows with logits
// (and so tokens), which then are padding: they compute nothing that anyone reads.
void PackStep(const StepInput& input, const CudaStepShape& shape, int32_t block_size,
              std::byte* buffer, CudaStep* step);

}  // namespace penstock
