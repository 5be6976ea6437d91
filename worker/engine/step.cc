#include "worker/engine/step.h"

#include <cstring>

#include "common/base/check.h"

namespace penstock {

void StepInputBuilder::Begin(uint64_t step_id, int32_t num_groups) {
  step_id_ = step_id;
  num_groups_ = num_groups;
  num_tokens_ = 0;
  rows_.clear();
  token_ids_.clear();
  row_blocks_.clear();
  blocks_.clear();
}

void StepInputBuilder::AddRow(StepRow row, std::span<const TokenId> token_ids,
                              std::span<const std::span<const BlockId>> blocks_of_group) {
  CHECK(row.num_tokens >= 1);
  CHECK(token_ids.empty() ? row.num_tokens == 1
                          : token_ids.size() == static_cast<size_t>(row.num_tokens));
  CHECK(blocks_of_group.size() == static_cast<size_t>(num_groups_));
  row.token_offset = token_ids.empty() ? -1 : static_cast<int32_t>(token_ids_.size());
  token_ids_.insert(token_ids_.end(), token_ids.begin(), token_ids.end());
  for (const std::span<const BlockId> blocks : blocks_of_group) {
    row_blocks_.push_back(
        {static_cast<int32_t>(blocks_.size()), static_cast<int32_t>(blocks.size())});
    blocks_.insert(blocks_.end(), blocks.begin(), blocks.end());
  }
  num_tokens_ += row.num_tokens;
  rows_.push_back(row);
}

void StepInputBuilder::Finish(StepInput* out) const {
  StepInput::Header header;
  header.num_groups = num_groups_;
  header.step_id = step_id_;
  header.num_tokens = num_tokens_;
  size_t size = (sizeof(header) + 7) / 8 * 8;
  const auto place = [&size](StepInput::Extent* extent, size_t count, size_t item_bytes) {
    *extent = {static_cast<uint32_t>(size), static_cast<uint32_t>(count)};
    size += (count * item_bytes + 7) / 8 * 8;
  };
  place(&header.rows, rows_.size(), sizeof(StepRow));
  place(&header.token_ids, token_ids_.size(), sizeof(TokenId));
  place(&header.row_blocks, row_blocks_.size(), sizeof(RowBlocks));
  place(&header.blocks, blocks_.size(), sizeof(BlockId));
  out->buffer_.resize(size);
  const auto copy = [out](const StepInput::Extent& extent, const auto& items) {
    if (items.empty()) return;
    std::memcpy(out->buffer_.data() + extent.offset, items.data(), items.size() * sizeof(items[0]));
  };
  std::memcpy(out->buffer_.data(), &header, sizeof(header));
  copy(header.rows, rows_);
  copy(header.token_ids, token_ids_);
  copy(header.row_blocks, row_blocks_);
  copy(header.blocks, blocks_);
}

}  // namespace penstock
