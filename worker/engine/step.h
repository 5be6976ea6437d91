#pragma once

// One step's work for a ModelRunner, and its result.
//
// StepInput is one flat buffer without pointers: a header, then arrays found by offsets. It can be
// copied to a tensor-parallel peer as it is. Build it with StepInputBuilder, whose storage is
// reused (no allocation once it has grown). Sampling parameters travel once, when a sequence takes
// its slot; steps carry only what changes.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "worker/engine/ids.h"
#include "worker/engine/sampling.h"

namespace penstock {

inline constexpr uint32_t kStepInputVersion = 1;

// Which of a row's positions get logits. kAll and kPooled are for scoring and embeddings.
enum class LogitsKind : uint8_t { kNone, kLast, kAll, kPooled };

// One sequence's part of a step: num_tokens consecutive positions from start_position.
struct StepRow {
  SlotId slot = kPaddingSlot;
  int32_t num_tokens = 0;      // >= 1; 1 for decode
  int32_t start_position = 0;  // = tokens whose KV is already there
  // First of the row's ids in token_ids(), or -1: the input is the slot's last sampled token, which
  // the host may not know yet (then num_tokens is 1).
  int32_t token_offset = -1;
  int32_t adapter_id = -1;  // -1 = base model
  // Index of the token this row samples in the request's output (replayed tokens included), or -1
  // when the row samples nothing (a prefill chunk that is not the last).
  int32_t output_index = -1;
  LogitsKind logits = LogitsKind::kNone;
};

// A row's blocks of one KV group, in order of position: blocks()[first, first + count). Entry i is
// for positions [i * block_size, (i + 1) * block_size); it covers the row's own positions too. In a
// group with a window, entries wholly before the window are kPaddingBlock (released).
struct RowBlocks {
  int32_t first = 0;
  int32_t count = 0;
};

class StepInput {
 public:
  uint64_t step_id() const { return header().step_id; }
  int32_t num_groups() const { return header().num_groups; }
  std::span<const StepRow> rows() const { return Array<StepRow>(header().rows); }
  std::span<const TokenId> token_ids() const { return Array<TokenId>(header().token_ids); }
  std::span<const BlockId> blocks() const { return Array<BlockId>(header().blocks); }
  // The blocks of rows()[row] in a KV group.
  std::span<const BlockId> row_blocks(size_t row, size_t group) const {
    const RowBlocks& r = Array<RowBlocks>(header().row_blocks)[row * header().num_groups + group];
    return blocks().subspan(r.first, r.count);
  }
  // Total of num_tokens over rows.
  int32_t num_tokens() const { return header().num_tokens; }
  std::span<const std::byte> bytes() const { return buffer_; }

 private:
  friend class StepInputBuilder;
  struct Extent {
    uint32_t offset = 0;  // bytes from the buffer's start, aligned to 8
    uint32_t count = 0;
  };
  struct Header {
    uint32_t version = kStepInputVersion;
    int32_t num_groups = 1;
    uint64_t step_id = 0;
    int32_t num_tokens = 0;
    Extent rows, token_ids, row_blocks, blocks;
  };
  const Header& header() const { return *reinterpret_cast<const Header*>(buffer_.data()); }
  template <typename T>
  std::span<const T> Array(const Extent& extent) const {
    return {reinterpret_cast<const T*>(buffer_.data() + extent.offset), extent.count};
  }
  std::vector<std::byte> buffer_ = std::vector<std::byte>(sizeof(Header));
};

class StepInputBuilder {
 public:
  void Begin(uint64_t step_id, int32_t num_groups);
  // token_ids empty = the slot's last sampled token. Sets the row's token_offset. blocks_of_group
  // has num_groups entries.
  void AddRow(const StepRow& row, std::span<const TokenId> token_ids,
              std::span<const std::span<const BlockId>> blocks_of_group);
  // Packs what was added into out, whose storage is reused.
  void Finish(StepInput* out);

 private:
  static constexpr size_t kHeaderBytes = (sizeof(StepInput::Header) + 7) / 8 * 8;

  uint64_t step_id_ = 0;
  int32_t num_groups_ = 1;
  int32_t num_tokens_ = 0;
  std::vector<StepRow> rows_;
  std::vector<TokenId> token_ids_;
  std::vector<RowBlocks> row_blocks_;
  // The block lists are by far the most bytes of a step: they are written once, to their place in
  // the packed buffer, behind the header. The rest follows them in Finish.
  std::vector<std::byte> buffer_;
  uint32_t num_blocks_ = 0;
};

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;  // never NaN; impossible tokens are -9999
};

// One row's result, in the order of the step's rows that sampled. Ragged: 0..k tokens.
struct RowOutput {
  SlotId slot = kPaddingSlot;
  int32_t token_begin = 0;  // StepOutput::tokens[token_begin, token_end)
  int32_t token_end = 0;
  int32_t logprob_begin =
      0;                     // StepOutput::logprobs[begin, end): per token the sampled token first,
  int32_t logprob_end = 0;   // then its top_logprobs best ones
  int32_t sampled_rank = 0;  // 1 = the best token (with logprobs on)
  bool nonfinite_logits = false;  // NaN or infinity: the request ends with an error
};

struct StepOutput {
  uint64_t step_id = 0;
  std::vector<RowOutput> rows;
  std::vector<TokenId> tokens;
  std::vector<TokenLogprob> logprobs;
};

}  // namespace penstock
