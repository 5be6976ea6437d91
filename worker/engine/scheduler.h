#pragma once

// Decides what the next step computes: a pure function of sequences, KV state and configuration.
// No clock, I/O, log or CUDA; it changes nothing but the plan (and its own scratch storage).
//
// Rules, in words:
// * Importance is (rank, arrival). Every running sequence that can decode gets a row each step.
// * Prompts are computed in chunks: one per sequence and step, cut at absolute multiples of the
//   chunk size. While anything decodes, a step takes at most one chunk's worth of prompt tokens, so
//   a running stream's gap is bounded; otherwise as much as the token budget allows.
// * Prompts in progress take turns (least recently served first, then the shorter rest), so a short
//   prompt does not wait for a long one to end, nor a long one for a stream of short ones. Better
//   ranks go first, except in every eighth step.
// * When blocks run out, the least important running sequence is preempted; it is computed again
//   later. The most important one is never preempted and always progresses.
// * Waiting sequences start in order of importance while a slot is free and their whole prompt fits
//   beside what running prompts still need. Every eighth start goes to the oldest, which from then
//   on ranks first: nobody starves. A waiting sequence of a strictly better rank preempts a running
//   one.

#include <cstdint>
#include <span>
#include <vector>

#include "worker/engine/kv_cache.h"
#include "worker/engine/model_runner.h"
#include "worker/engine/sequence.h"

namespace penstock {

// Of the table's sizes that are at most cap tokens, the smallest whose time per token is within a
// quarter of the best: larger ones only make streams wait. A multiple of block_size, at least one
// block; with no usable entry, cap rounded down.
int32_t PrefillChunkSize(std::span<const RunnerInfo::ChunkTime> table, int32_t block_size,
                         int32_t cap);

struct SchedulerConfig {
  int32_t max_num_batched_tokens = 0;  // >= max_num_seqs + prefill_chunk
  int32_t prefill_chunk = 0;           // tokens, a multiple of the block size
};

struct ScheduleInput {
  uint64_t step = 0;
  std::span<Sequence* const> running;  // most important first
  std::span<Sequence* const> waiting;  // most important first
  int32_t free_slots = 0;
  // Ended or preempted ones whose slot and blocks come back when their rows in flight are
  // collected.
  std::span<Sequence* const> draining;
  uint64_t starts = 0;  // admissions so far
};

struct PlannedRow {
  Sequence* sequence = nullptr;
  int32_t num_tokens = 0;
};

struct PlannedStart {
  Sequence* sequence = nullptr;
  int32_t hit_blocks = 0;  // prefix found in the cache; never covers the last token
  bool promoted = false;   // its rank becomes kPromotedRank
};

// Carried out in this order: preempt, start, rows.
struct SchedulePlan {
  std::vector<Sequence*> preempted;
  std::vector<PlannedStart> started;
  std::vector<PlannedRow> rows;
};

class Scheduler {
 public:
  Scheduler(SchedulerConfig config, const KvCache& kv) : config_(config), kv_(kv) {}
  void Plan(const ScheduleInput& input, SchedulePlan* plan);

 private:
  // What a step can still spend.
  struct Budget {
    PerGroup free = {};      // blocks
    PerGroup draining = {};  // blocks that come back at the next Collects
    PerGroup reserved = {};  // blocks that running prompts will still need
    int32_t free_slots = 0;
    bool draining_counted = false;
    int32_t prompt_tokens = 0;
    bool short_of_blocks = false;
  };
  struct Wish {
    int32_t index = 0;  // in running
    int32_t num_tokens = 0;
  };

  int32_t NextChunk(const Sequence& sequence) const;
  void ChooseChunks(const ScheduleInput& input, Budget* budget);
  void PreemptForRank(const ScheduleInput& input, Budget* budget, SchedulePlan* plan);
  void PlanRunning(const ScheduleInput& input, Budget* budget, SchedulePlan* plan);
  bool TakeBlocks(const ScheduleInput& input, size_t index, int32_t num_blocks, Budget* budget,
                  SchedulePlan* plan);
  void CountDraining(const ScheduleInput& input, Budget* budget) const;
  void Preempt(Sequence* victim, Budget* budget, SchedulePlan* plan) const;
  void StartWaiting(const ScheduleInput& input, Budget* budget, SchedulePlan* plan);
  // Index in waiting, or -1.
  int32_t NextToStart(const ScheduleInput& input, uint64_t starts, bool* promoted);
  bool Fits(const Sequence& sequence, const PrefixHit& hit, const Budget& budget,
            size_t num_running) const;
  PrefixHit HitOf(const Sequence& sequence) const;

  const SchedulerConfig config_;
  const KvCache& kv_;
  // Scratch, reused from step to step.
  std::vector<int32_t> tokens_of_;  // by index in running: this step's row, 0 = none
  std::vector<Wish> prompts_;
  std::vector<uint8_t> taken_;  // by index in waiting: started by this plan
  size_t next_waiting_ = 0;     // waiting before this is taken or may not start
  size_t num_kept_ = 0;         // running[0, num_kept_) are not preempted
};

}  // namespace penstock
