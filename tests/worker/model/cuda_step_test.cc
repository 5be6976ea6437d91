// Packing a step for the GPU: order of tokens, places in the cache, tables, padding.

#include "worker/model/cuda_step.h"

#include <gtest/gtest.h>

#include <cstring>

namespace penstock {
namespace {

template <typename T>
std::vector<T> Read(const std::vector<std::byte>& buffer, size_t offset, size_t count) {
  std::vector<T> values(count);
  std::memcpy(values.data(), buffer.data() + offset, count * sizeof(T));
  return values;
}

std::vector<BlockId> Blocks(std::initializer_list<int32_t> ids) {
  std::vector<BlockId> blocks;
  for (const int32_t id : ids) blocks.push_back(BlockId{id});
  return blocks;
}

// Rows: prefill of 3 in slot 4 at 15, decode in slot 2 at 33, prefill chunk of 2 in slot 7 without
// logits, decode with a known id in slot 9 at 0. Two groups.
class CudaStepTest : public ::testing::Test {
 protected:
  CudaStepTest() {
    StepInputBuilder builder;
    builder.Begin(77, 2);
    const auto add = [&](const StepRow& row, const std::vector<TokenId>& ids,
                         const std::vector<BlockId>& first, const std::vector<BlockId>& second) {
      const std::vector<std::span<const BlockId>> tables = {first, second};
      builder.AddRow(row, ids, tables);
    };
    add({.slot = SlotId{4},
         .num_tokens = 3,
         .start_position = 15,
         .output_index = 0,
         .logits = LogitsKind::kLast},
        {10, 11, 12}, Blocks({5, 6}), Blocks({50, 60}));
    add({.slot = SlotId{2},
         .num_tokens = 1,
         .start_position = 33,
         .output_index = 8,
         .logits = LogitsKind::kLast},
        {}, Blocks({1, 2, 3}), Blocks({0, 20, 30}));
    add({.slot = SlotId{7}, .num_tokens = 2}, {20, 21}, Blocks({9}), Blocks({90}));
    add({.slot = SlotId{9}, .num_tokens = 1, .output_index = 0, .logits = LogitsKind::kLast}, {42},
        Blocks({8}), Blocks({80}));
    builder.Finish(&input_);
  }
  void Pack(const CudaStepShape& shape) {
    buffer_.assign(MaxStepBytes(16, 8, 2, 4), std::byte{0xEE});
    PackStep(input_, shape, 16, buffer_.data(), &step_);
    ASSERT_LE(step_.bytes, buffer_.size());
  }
  std::vector<int32_t> Ints(size_t offset, size_t count) const {
    return Read<int32_t>(buffer_, offset, count);
  }
  StepInput input_;
  std::vector<std::byte> buffer_;
  CudaStep step_;
};

TEST_F(CudaStepTest, DecodeRowsComeFirst) {
  const CudaStepShape shape = ShapeOf(input_);
  EXPECT_EQ(shape.num_tokens, 7);
  EXPECT_EQ(shape.num_decode, 2);
  EXPECT_EQ(shape.num_prefill, 2);
  EXPECT_EQ(shape.num_last, 3);
  Pack(shape);
  const CudaStepLayout& at = step_.layout;
  EXPECT_EQ(Ints(at.ids, 7), (std::vector<int32_t>{-2, 42, 10, 11, 12, 20, 21}));
  EXPECT_EQ(Ints(at.positions, 7), (std::vector<int32_t>{33, 0, 15, 16, 17, 0, 1}));
  EXPECT_EQ(Ints(at.seq_lens, 2), (std::vector<int32_t>{34, 1}));
  EXPECT_EQ(Ints(at.token_begin, 3), (std::vector<int32_t>{2, 5, 7}));
  EXPECT_EQ(Ints(at.start_pos, 2), (std::vector<int32_t>{15, 0}));
  // Rows with logits stay in the input's order.
  EXPECT_EQ(Ints(at.last, 3), (std::vector<int32_t>{4, 0, 1}));
  EXPECT_EQ(Ints(at.row_slots, 3), (std::vector<int32_t>{4, 2, 9}));
  EXPECT_EQ(Ints(at.output_indices, 3), (std::vector<int32_t>{0, 8, 0}));
  EXPECT_EQ(step_.max_seq_len, 34);
  EXPECT_EQ(step_.max_new_tokens, 3);
  ASSERT_EQ(step_.sampled.size(), 3u);
  EXPECT_EQ(step_.sampled[1].slot, SlotId{2});
  EXPECT_EQ(step_.sampled[1].last, 1);
}

TEST_F(CudaStepTest, EveryGroupHasItsPlacesAndTables) {
  Pack(ShapeOf(input_));
  const CudaStepLayout& at = step_.layout;
  const auto slots = Read<int64_t>(buffer_, at.kv_slots, 14);
  EXPECT_EQ(std::vector<int64_t>(slots.begin(), slots.begin() + 7),
            (std::vector<int64_t>{3 * 16 + 1, 8 * 16, 5 * 16 + 15, 6 * 16, 6 * 16 + 1, 9 * 16,
                                  9 * 16 + 1}));
  EXPECT_EQ(slots[7], 30 * 16 + 1);
  const auto blocks = Ints(at.blocks, input_.blocks().size());
  const auto decode = Ints(at.decode_tables, 4);
  const auto prefill = Ints(at.prefill_tables, 4);
  EXPECT_EQ(blocks[static_cast<size_t>(decode[0])], 1);
  EXPECT_EQ(blocks[static_cast<size_t>(decode[1])], 8);
  EXPECT_EQ(blocks[static_cast<size_t>(decode[2]) + 2], 30);
  EXPECT_EQ(blocks[static_cast<size_t>(prefill[0]) + 1], 6);
  EXPECT_EQ(blocks[static_cast<size_t>(prefill[3])], 90);
}

TEST_F(CudaStepTest, PaddingReadsAndWritesNothing) {
  StepInputBuilder builder;
  builder.Begin(1, 1);
  const std::vector<BlockId> blocks = Blocks({4});
  const std::vector<std::span<const BlockId>> tables = {blocks};
  builder.AddRow({.slot = SlotId{3},
                  .num_tokens = 1,
                  .start_position = 5,
                  .output_index = 2,
                  .logits = LogitsKind::kLast},
                 {}, tables);
  builder.Finish(&input_);
  Pack({.num_tokens = 4, .num_decode = 4, .num_last = 4, .num_groups = 1});
  const CudaStepLayout& at = step_.layout;
  EXPECT_EQ(Ints(at.ids, 4), (std::vector<int32_t>{-3, 0, 0, 0}));
  EXPECT_EQ(Ints(at.seq_lens, 4), (std::vector<int32_t>{6, 0, 0, 0}));
  EXPECT_EQ(Ints(at.row_slots, 4), (std::vector<int32_t>{3, 0, 0, 0}));
  EXPECT_EQ(Ints(at.last, 4), (std::vector<int32_t>{0, 0, 0, 0}));
  EXPECT_EQ(Read<int64_t>(buffer_, at.kv_slots, 4), (std::vector<int64_t>{69, -1, -1, -1}));
  EXPECT_EQ(step_.sampled.size(), 1u);
  // Offsets are the shape's: a larger block list moves nothing.
  EXPECT_EQ(LayoutOf(step_.shape).blocks, at.blocks);
}

}  // namespace
}  // namespace penstock
