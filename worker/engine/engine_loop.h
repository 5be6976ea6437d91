#pragma once

// What the engine thread does, turn by turn: take in, plan, launch, collect, publish.
// Single-threaded; tests drive it without a thread.

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/engine/engine.h"
#include "worker/engine/inbox.h"
#include "worker/engine/kv_cache.h"
#include "worker/engine/model_runner.h"
#include "worker/engine/scheduler.h"
#include "worker/engine/sequence.h"

namespace penstock {

struct EngineSession {
  std::shared_ptr<EventSink> sink;
  StepEvents events;  // gathered until the next flush
  bool dirty = false;
};

class EngineLoop {
 public:
  // options are complete (no zeros). runner and inbox outlive this.
  EngineLoop(const EngineOptions& options, const EngineLimits& limits, ModelRunner& runner,
             Inbox& inbox);

  // One turn: takes in what waits, launches a step if there is one to launch, and collects the
  // oldest when the pipeline is full or nothing could be launched. False when there was nothing to
  // do. An error is the runner's: the engine is of no more use.
  absl::StatusOr<bool> Turn();

  // Waits for the steps in flight; their tokens go nowhere. After this, only destruction.
  absl::Status CollectAll();

  // Dies when KV counts, slots or sequence states disagree. For tests, between turns.
  void CheckInvariants() const;
  const KvCache& kv() const { return kv_; }
  const EngineStats& stats() const { return report_.stats; }

 private:
  struct FlownRow {
    Sequence* sequence = nullptr;
    int32_t num_tokens = 0;
    bool samples = false;
  };
  struct Flight {
    uint64_t step_id = 0;
    std::vector<FlownRow> rows;
  };

  // Taking in (engine_loop.cc).
  void TakeIn();
  void Accept(std::unique_ptr<Sequence> owned);
  bool EndIfReplayIsComplete(Sequence* s);
  void JoinGroup(Sequence* s);
  void LeaveGroup(Sequence* s);
  void CloseSession(uint32_t session);
  void AbortAll(const absl::Status& status);
  void ExpireDeadlines();
  void NoteDeadline(const Sequence& s);
  void FlushEvents();
  void UpdateStats();

  // Launching.
  absl::StatusOr<bool> LaunchStep();
  void Preempt(Sequence* s);
  void Start(const PlannedStart& start);
  void AddRow(const PlannedRow& row, Flight* flight);

  // Collecting (engine_collect.cc).
  absl::Status CollectStep();
  void FinishRow(const FlownRow& row, const StepOutput& output, const RowOutput* out);
  void TakeTokens(Sequence* s, const StepOutput& output, const RowOutput& out);
  void EmitLogprobs(Sequence* s, const StepOutput& output, const RowOutput& out);
  // True when this token, now the last of s, ends it.
  bool EndsWith(Sequence* s, TokenId token);
  void PublishBlocks(Sequence* s);
  void End(Sequence* s, FinishReason reason, TokenId stop_id, absl::Status status);
  void ReleaseResources(Sequence* s);
  void Requeue(Sequence* s);
  void Bury(Sequence* s);
  StepEvents* EventsOf(Sequence* s);

  const EngineOptions options_;
  const EngineLimits limits_;
  ModelRunner& runner_;
  Inbox& inbox_;
  KvCache kv_;
  Scheduler scheduler_;
  BlockHasher hasher_;

  std::vector<std::unique_ptr<Sequence>> live_;  // by Sequence::index
  std::vector<Sequence*> running_;               // most important first
  std::vector<Sequence*> waiting_;               // most important first
  std::vector<Sequence*> draining_;              // kPreempting or kEnded with rows in flight
  std::vector<std::unique_ptr<Sequence>> dead_;  // reported at the next exchange, then freed
  std::vector<SlotId> free_slots_;
  std::map<uint32_t, EngineSession> sessions_;
  std::map<std::pair<uint32_t, uint64_t>, SequenceGroup> groups_;
  std::vector<EngineSession*> dirty_;

  InboxBatch batch_;
  InboxReport report_;
  SchedulePlan plan_;
  StepInputBuilder builder_;
  StepInput input_;
  std::vector<std::span<const BlockId>> row_blocks_;  // one row's, by group
  std::array<Flight, kMaxStepsInFlight> flights_;     // a ring
  int32_t num_flights_ = 0;
  uint64_t next_step_ = 1;
  uint64_t starts_ = 0;
  int64_t now_ns_ = 0;
  int64_t next_deadline_ns_;  // no live deadline is earlier
};

}  // namespace penstock
