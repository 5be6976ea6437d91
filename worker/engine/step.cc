#include "worker/engine/step.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/check.h"

namespace penstock {

void StepInputBuilder::Begin(uint64_t step_id, int32_t num_groups) {
  step_id_ = step_id;
  num_groups_ = num_groups;
  num_tokens_ = 0;
  num_blocks_ = 0;
  rows_.clear();
  token_ids_.clear();
  row_blocks_.clear();
}

void StepInputBuilder::AddRow(const StepRow& row, std::span<const TokenId> token_ids,
                              std::span<const std::span<const BlockId>> blocks_of_group) {
  CHECK(row.num_tokens >= 1);
  CHECK(token_ids.empty() ? row.num_tokens == 1
                          : token_ids.size() == static_cast<size_t>(row.num_tokens));
  CHECK(blocks_of_group.size() == static_cast<size_t>(num_groups_));
  rows_.push_back(row);
  rows_.back().token_offset = token_ids.empty() ? -1 : static_cast<int32_t>(token_ids_.size());
  token_ids_.insert(token_ids_.end(), token_ids.begin(), token_ids.end());
  for (const std::span<const BlockId> blocks : blocks_of_group) {
    row_blocks_.push_back({static_cast<int32_t>(num_blocks_), static_cast<int32_t>(blocks.size())});
    const size_t at = kHeaderBytes + num_blocks_ * sizeof(BlockId);
    if (at + blocks.size_bytes() > buffer_.size()) {
      buffer_.resize(std::max(at + blocks.size_bytes(), 2 * buffer_.size()));
    }
    if (!blocks.empty()) std::memcpy(buffer_.data() + at, blocks.data(), blocks.size_bytes());
    num_blocks_ += static_cast<uint32_t>(blocks.size());
  }
  num_tokens_ += row.num_tokens;
}

void StepInputBuilder::Finish(StepInput* out) {
  StepInput::Header header;
  header.num_groups = num_groups_;
  header.step_id = step_id_;
  header.num_tokens = num_tokens_;
  size_t size = kHeaderBytes;
  const auto place = [&size](StepInput::Extent* extent, size_t count, size_t item_bytes) {
    *extent = {static_cast<uint32_t>(size), static_cast<uint32_t>(count)};
    size += (count * item_bytes + 7) / 8 * 8;
  };
  place(&header.blocks, num_blocks_, sizeof(BlockId));
  place(&header.rows, rows_.size(), sizeof(StepRow));
  place(&header.token_ids, token_ids_.size(), sizeof(TokenId));
  place(&header.row_blocks, row_blocks_.size(), sizeof(RowBlocks));
  buffer_.resize(size);
  const auto copy = [this](const StepInput::Extent& extent, const auto& items) {
    if (items.empty()) return;
    std::memcpy(buffer_.data() + extent.offset, items.data(), items.size() * sizeof(items[0]));
  };
  std::memcpy(buffer_.data(), &header, sizeof(header));
  copy(header.rows, rows_);
  copy(header.token_ids, token_ids_);
  copy(header.row_blocks, row_blocks_);
  std::swap(out->buffer_, buffer_);
}

}  // namespace penstock
