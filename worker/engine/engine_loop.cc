#include "worker/engine/engine_loop.h"

#include <algorithm>
#include <limits>

#include "common/base/check.h"
#include "common/base/status.h"

namespace penstock {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

bool MoreImportant(const Sequence* a, const Sequence* b) {
  return std::pair(a->rank, a->arrival) < std::pair(b->rank, b->arrival);
}

void InsertByImportance(Sequence* s, std::vector<Sequence*>* list) {
  list->insert(std::upper_bound(list->begin(), list->end(), s, MoreImportant), s);
}

}  // namespace

EngineLoop::EngineLoop(const EngineOptions& options, const EngineLimits& limits,
                       ModelRunner& runner, Inbox& inbox)
    : options_(options),
      limits_(limits),
      runner_(runner),
      inbox_(inbox),
      kv_(runner.info().kv_groups, limits.block_size,
          limits.prefill_chunk * options.steps_in_flight),
      scheduler_({limits.max_num_batched_tokens, limits.prefill_chunk}, kv_),
      next_deadline_ns_(kNever) {
  for (int32_t i = limits.max_num_seqs; i > 0; --i) free_slots_.push_back(SlotId{i});
  row_blocks_.resize(static_cast<size_t>(kv_.num_groups()));
  running_.reserve(static_cast<size_t>(limits.max_num_seqs));
  for (Flight& flight : flights_) flight.rows.reserve(static_cast<size_t>(limits.max_num_seqs));
}

absl::StatusOr<bool> EngineLoop::Turn() {
  now_ns_ = options_.now_ns();
  TakeIn();
  ExpireDeadlines();
  FlushEvents();
  bool launched = false;
  if (num_flights_ < options_.steps_in_flight) {
    ASSIGN_OR_RETURN(launched, LaunchStep());
  }
  const bool collect = num_flights_ == options_.steps_in_flight || (!launched && num_flights_ > 0);
  if (collect) {
    RETURN_IF_ERROR(CollectStep());
    FlushEvents();
  }
  return launched || collect || !dead_.empty();
}

// ---- Taking in ----

void EngineLoop::TakeIn() {
  report_.dead.clear();
  for (const auto& s : dead_) report_.dead.push_back(s.get());
  UpdateStats();
  inbox_.Exchange(report_, &batch_);
  report_.started = 0;
  report_.started_tokens = 0;
  for (auto& [session, sink] : batch_.opened) sessions_[session].sink = std::move(sink);
  for (auto& owned : batch_.submitted) Accept(std::move(owned));
  for (Sequence* s : batch_.cancelled) End(s, FinishReason::kCancelled, -1, absl::OkStatus());
  if (!batch_.abort.ok()) AbortAll(batch_.abort);
  for (const uint32_t session : batch_.closed) CloseSession(session);
  // Only now: a cancel in this batch may have named one of them.
  dead_.erase(dead_.begin(), dead_.begin() + static_cast<ptrdiff_t>(report_.dead.size()));
}

void EngineLoop::Accept(std::unique_ptr<Sequence> owned) {
  Sequence* s = owned.get();
  const auto session = sessions_.find(s->request.session);
  CHECK(session != sessions_.end());
  s->session = &session->second;
  s->rank = s->request.priority;
  s->index = live_.size();
  live_.push_back(std::move(owned));
  InsertByImportance(s, &waiting_);
  EventsOf(s)->accepted.push_back(s->id);
  if (EndIfReplayIsComplete(s)) return;
  JoinGroup(s);
  NoteDeadline(*s);
}

bool EngineLoop::EndIfReplayIsComplete(Sequence* s) {
  // A worker may have died between a request's last token and its Finish.
  return s->num_output() > 0 && EndsWith(s, s->tokens.back());
}

void EngineLoop::JoinGroup(Sequence* s) {
  // Without a full block to share, or without reading the cache, nobody waits for anybody.
  const bool shares = options_.enable_prefix_caching && s->request.read_prefix_cache &&
                      s->num_prompt > limits_.block_size;
  if (s->request.group_id == 0 || !shares) return;
  SequenceGroup& group = groups_[{s->request.session, s->request.group_id}];
  if (group.leader == nullptr) group.leader = s;
  ++group.members;
  s->group = &group;
}

void EngineLoop::LeaveGroup(Sequence* s) {
  if (s->group == nullptr) return;
  SequenceGroup* group = std::exchange(s->group, nullptr);
  if (--group->members == 0) {
    groups_.erase({s->request.session, s->request.group_id});
    return;
  }
  if (group->leader != s) return;
  group->leader = nullptr;
  for (const auto& other : live_) {
    if (other->group != group) continue;
    if (group->leader == nullptr || other->arrival < group->leader->arrival) {
      group->leader = other.get();
    }
  }
  CHECK(group->leader != nullptr);
}

void EngineLoop::CloseSession(uint32_t session) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return;
  std::vector<Sequence*> mine;
  for (const auto& s : live_) {
    if (s->session == &it->second) mine.push_back(s.get());
  }
  for (Sequence* s : mine) {
    End(s, FinishReason::kCancelled, -1, absl::OkStatus());
    s->session = nullptr;  // may still have a row in flight
  }
  std::erase(dirty_, &it->second);
  sessions_.erase(it);
}

void EngineLoop::AbortAll(const absl::Status& status) {
  std::vector<Sequence*> all;
  for (const auto& s : live_) all.push_back(s.get());
  for (Sequence* s : all) End(s, FinishReason::kError, -1, status);
}

void EngineLoop::NoteDeadline(const Sequence& s) {
  if (s.request.deadline_ns != 0) {
    next_deadline_ns_ = std::min(next_deadline_ns_, s.request.deadline_ns);
  }
}

void EngineLoop::ExpireDeadlines() {
  if (now_ns_ < next_deadline_ns_) return;
  std::vector<Sequence*> expired;
  next_deadline_ns_ = kNever;
  for (const auto& s : live_) {
    if (s->state == SequenceState::kEnded) continue;
    if (s->request.deadline_ns != 0 && s->request.deadline_ns <= now_ns_) {
      expired.push_back(s.get());
    } else {
      NoteDeadline(*s);
    }
  }
  for (Sequence* s : expired) End(s, FinishReason::kDeadline, -1, absl::OkStatus());
}

void EngineLoop::FlushEvents() {
  for (EngineSession* session : dirty_) {
    session->events.step = report_.stats.steps;
    session->sink->OnEvents(&session->events);
    session->events.Clear();
    session->dirty = false;
  }
  dirty_.clear();
}

void EngineLoop::UpdateStats() {
  EngineStats& stats = report_.stats;
  stats.last_loop_ns = now_ns_;
  stats.running = static_cast<int32_t>(running_.size());
  stats.waiting = static_cast<int32_t>(waiting_.size());
  for (const Sequence* s : draining_) {
    if (s->state == SequenceState::kPreempting) ++stats.waiting;
  }
  // The tightest group speaks for the cache.
  const BlockPool* tightest = &kv_.pool(0);
  for (int g = 1; g < kv_.num_groups(); ++g) {
    const BlockPool& pool = kv_.pool(g);
    if (static_cast<int64_t>(pool.num_free()) * tightest->num_blocks() <
        static_cast<int64_t>(tightest->num_free()) * pool.num_blocks()) {
      tightest = &pool;
    }
  }
  stats.total_blocks = tightest->num_blocks();
  stats.free_blocks = tightest->num_unused();
  stats.cached_blocks = tightest->cache().num_idle();
}

// ---- Launching ----

absl::StatusOr<bool> EngineLoop::LaunchStep() {
  if (running_.empty() && waiting_.empty()) return false;
  scheduler_.Plan({.step = next_step_,
                   .running = running_,
                   .waiting = waiting_,
                   .free_slots = static_cast<int32_t>(free_slots_.size()),
                   .draining = draining_,
                   .starts = starts_},
                  &plan_);
  for (Sequence* s : plan_.preempted) Preempt(s);
  for (const PlannedStart& start : plan_.started) Start(start);
  if (plan_.rows.empty()) return !plan_.preempted.empty() || !plan_.started.empty();
  Flight& flight = flights_[next_step_ % kMaxStepsInFlight];
  flight.step_id = next_step_++;
  flight.rows.clear();
  builder_.Begin(flight.step_id, kv_.num_groups());
  for (size_t i = 0; i < plan_.rows.size(); ++i) {
    if (i + kPrefetch < plan_.rows.size()) Prefetch(plan_.rows[i + kPrefetch].sequence);
    AddRow(plan_.rows[i], &flight);
  }
  builder_.Finish(&input_);
  RETURN_IF_ERROR(runner_.LaunchForward(input_));
  RETURN_IF_ERROR(runner_.LaunchSample({}));
  ++num_flights_;
  return true;
}

void EngineLoop::Preempt(Sequence* s) {
  std::erase(running_, s);
  ++s->preemptions;
  ++report_.stats.preemptions;
  if (s->rows_in_flight > 0) {
    s->state = SequenceState::kPreempting;
    draining_.push_back(s);
    return;
  }
  ReleaseResources(s);
  Requeue(s);
}

void EngineLoop::Start(const PlannedStart& start) {
  Sequence* s = start.sequence;
  std::erase(waiting_, s);
  ++starts_;
  if (start.promoted) s->rank = kPromotedRank;
  s->state = SequenceState::kRunning;
  s->slot = free_slots_.back();
  free_slots_.pop_back();
  s->prefill_end = static_cast<int32_t>(s->tokens.size());
  s->computed = s->collected = start.hit_blocks * limits_.block_size;
  s->published = start.hit_blocks;
  s->turn = next_step_ - 1;
  if (start.hit_blocks > 0) kv_.Attach(s->chain, start.hit_blocks, &s->table);
  if (options_.enable_prefix_caching && s->request.read_prefix_cache) {
    report_.stats.prefix_queries += static_cast<uint64_t>(s->prefill_end);
    report_.stats.prefix_hits += static_cast<uint64_t>(s->computed);
  }
  if (s->cached_tokens < 0) {
    s->cached_tokens = s->computed;
    s->start_ns = now_ns_;
    ++report_.started;
    report_.started_tokens += s->prefill_end;
  }
  InsertByImportance(s, &running_);
  const std::span<const TokenId> tokens(s->tokens);
  runner_.InitSlot({.slot = s->slot,
                    .sampling = &s->request.sampling,
                    .prompt_ids = tokens.first(static_cast<size_t>(s->num_prompt)),
                    .output_ids = tokens.subspan(static_cast<size_t>(s->num_prompt))});
}

void EngineLoop::AddRow(const PlannedRow& planned, Flight* flight) {
  Sequence* s = planned.sequence;
  const bool prefill = s->prefilling();
  const int32_t end = s->computed + planned.num_tokens;
  const bool samples = end >= s->prefill_end;
  if (end > s->table.size() * limits_.block_size) kv_.Grow(kv_.BlocksFor(end), &s->table);
  for (size_t g = 0; g < row_blocks_.size(); ++g) row_blocks_[g] = s->table.blocks[g];
  const StepRow row{.slot = s->slot,
                    .num_tokens = planned.num_tokens,
                    .start_position = s->computed,
                    .adapter_id = s->adapter_id,
                    .output_index = samples ? s->num_output() + s->unknown : -1,
                    .logits = samples ? LogitsKind::kLast : LogitsKind::kNone};
  std::span<const TokenId> ids;  // a decode row's input is the slot's last token
  if (prefill) {
    ids = std::span<const TokenId>(s->tokens).subspan(static_cast<size_t>(s->computed),
                                                      static_cast<size_t>(planned.num_tokens));
    s->turn = flight->step_id;
    report_.stats.prompt_tokens += static_cast<uint64_t>(planned.num_tokens);
  }
  builder_.AddRow(row, ids, row_blocks_);
  s->computed = end;
  ++s->rows_in_flight;
  if (samples) ++s->unknown;
  flight->rows.push_back({s, planned.num_tokens, samples});
}

void EngineLoop::Requeue(Sequence* s) {
  s->state = SequenceState::kWaiting;
  InsertByImportance(s, &waiting_);
}

void EngineLoop::CheckInvariants() const {
  std::vector<const BlockTable*> tables;
  size_t with_slot = 0;
  for (size_t i = 0; i < live_.size(); ++i) {
    const Sequence& s = *live_[i];
    CHECK(s.index == i);
    tables.push_back(&s.table);
    const bool holds = s.slot != kPaddingSlot;
    with_slot += holds ? 1 : 0;
    const bool waits = std::find(waiting_.begin(), waiting_.end(), &s) != waiting_.end();
    const bool runs = std::find(running_.begin(), running_.end(), &s) != running_.end();
    const bool drains = std::find(draining_.begin(), draining_.end(), &s) != draining_.end();
    CHECK(waits + runs + drains == 1);
    CHECK(waits == (s.state == SequenceState::kWaiting));
    CHECK(runs == (s.state == SequenceState::kRunning));
    CHECK(holds == !waits);
    CHECK(!drains || s.rows_in_flight > 0);
    CHECK(s.rows_in_flight <= num_flights_);
    CHECK(s.collected <= s.computed && s.unknown >= 0);
    CHECK(waits ? s.table.size() == 0 : s.table.size() >= kv_.BlocksFor(s.computed));
    for (int g = 0; runs && g < kv_.num_groups(); ++g) {
      CHECK(kv_.held(s.table, g) <= kv_.PeakBlocks(g, s.table.size() * limits_.block_size));
    }
    CHECK(s.num_output() <= s.max_tokens);
  }
  CHECK(with_slot + free_slots_.size() == static_cast<size_t>(limits_.max_num_seqs));
  CHECK(std::is_sorted(running_.begin(), running_.end(), MoreImportant));
  CHECK(std::is_sorted(waiting_.begin(), waiting_.end(), MoreImportant));
  kv_.CheckInvariants(tables);
}

}  // namespace penstock
