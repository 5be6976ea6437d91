#include "worker/engine/scheduler.h"

#include <algorithm>
#include <tuple>

#include "common/base/check.h"

namespace penstock {
namespace {

// Every eighth step and every eighth start go by age instead of rank.
constexpr uint64_t kByAge = 8;

bool MayStart(const Sequence& sequence) {
  const SequenceGroup* group = sequence.group;
  return group == nullptr || group->published || group->leader == &sequence;
}

}  // namespace

int32_t PrefillChunkSize(std::span<const RunnerInfo::ChunkTime> table, int32_t block_size,
                         int32_t cap) {
  const int32_t largest = std::max(cap / block_size, 1) * block_size;
  const auto usable = [&](const RunnerInfo::ChunkTime& e) {
    return e.tokens >= block_size && e.tokens <= largest && e.micros > 0;
  };
  double best = 0;  // tokens per microsecond
  for (const RunnerInfo::ChunkTime& e : table) {
    if (usable(e)) best = std::max(best, static_cast<double>(e.tokens) / e.micros);
  }
  for (const RunnerInfo::ChunkTime& e : table) {
    if (usable(e) && 1.25 * e.tokens / e.micros >= best) {
      return e.tokens / block_size * block_size;
    }
  }
  return largest;
}

void Scheduler::Plan(const ScheduleInput& input, SchedulePlan* plan) {
  plan->preempted.clear();
  plan->started.clear();
  plan->rows.clear();
  num_kept_ = input.running.size();
  Budget budget;
  budget.free_slots = input.free_slots;
  for (int g = 0; g < kv_.num_groups(); ++g) {
    budget.free[static_cast<size_t>(g)] = kv_.num_free(g);
  }
  ChooseChunks(input, &budget);
  PlanRunning(input, &budget, plan);
  PreemptForRank(input, &budget, plan);
  if (!budget.short_of_blocks && plan->preempted.empty()) StartWaiting(input, &budget, plan);
}

int32_t Scheduler::NextChunk(const Sequence& sequence) const {
  const int32_t edge = (sequence.computed / config_.prefill_chunk + 1) * config_.prefill_chunk;
  return std::min(edge, sequence.prefill_end) - sequence.computed;
}

void Scheduler::ChooseChunks(const ScheduleInput& input, Budget* budget) {
  tokens_of_.assign(input.running.size(), 0);
  prompts_.clear();
  int32_t num_decodes = 0;
  for (size_t i = 0; i < input.running.size(); ++i) {
    if (i + kPrefetch < input.running.size()) Prefetch(input.running[i + kPrefetch]);
    const Sequence& s = *input.running[i];
    if (s.prefilling()) {
      prompts_.push_back({static_cast<int32_t>(i), NextChunk(s)});
    } else if (s.wants_token()) {
      tokens_of_[i] = 1;
      ++num_decodes;
    }
  }
  const int32_t left = config_.max_num_batched_tokens - num_decodes;
  budget->prompt_tokens = num_decodes > 0 ? std::min(config_.prefill_chunk, left) : left;
  const bool by_age = input.step % kByAge == 0;
  const auto key = [&](const Wish& w) {
    const Sequence& s = *input.running[static_cast<size_t>(w.index)];
    return std::tuple(by_age ? 0 : s.rank, s.turn, s.prefill_end - s.computed, s.arrival);
  };
  if (prompts_.size() > 1) {
    std::sort(prompts_.begin(), prompts_.end(),
              [&](const Wish& a, const Wish& b) { return key(a) < key(b); });
  }
  for (const Wish& wish : prompts_) {
    if (wish.num_tokens > budget->prompt_tokens) continue;
    tokens_of_[static_cast<size_t>(wish.index)] = wish.num_tokens;
    budget->prompt_tokens -= wish.num_tokens;
  }
}

void Scheduler::PlanRunning(const ScheduleInput& input, Budget* budget, SchedulePlan* plan) {
  for (size_t i = 0; i < num_kept_; ++i) {
    Sequence* s = input.running[i];
    const int32_t tokens = tokens_of_[i];
    int32_t new_blocks = 0;
    if (tokens > 0) {
      if (s->computed + tokens > s->table.size() * kv_.block_size()) {
        new_blocks = kv_.BlocksFor(s->computed + tokens) - s->table.size();
      }
      if (new_blocks > 0 && !TakeBlocks(input, i, new_blocks, budget, plan)) {
        budget->short_of_blocks = true;
        new_blocks = 0;
      } else {
        plan->rows.push_back({s, tokens});
      }
    }
    if (!s->prefilling()) continue;
    for (int g = 0; g < kv_.num_groups(); ++g) {
      const int32_t rest = kv_.PeakBlocks(g, s->prefill_end) - kv_.held(s->table, g) - new_blocks;
      budget->reserved[static_cast<size_t>(g)] += std::max(rest, 0);
    }
  }
}

bool Scheduler::TakeBlocks(const ScheduleInput& input, size_t index, int32_t num_blocks,
                           Budget* budget, SchedulePlan* plan) {
  const auto covered = [&](bool with_draining) {
    for (size_t g = 0; g < static_cast<size_t>(kv_.num_groups()); ++g) {
      if (budget->free[g] + (with_draining ? budget->draining[g] : 0) < num_blocks) return false;
    }
    return true;
  };
  while (!covered(false)) {
    CountDraining(input, budget);
    // Blocks are on their way, or the rest is more important: wait a step.
    if (covered(true) || num_kept_ <= index + 1) return false;
    Preempt(input.running[--num_kept_], budget, plan);
  }
  for (size_t g = 0; g < static_cast<size_t>(kv_.num_groups()); ++g) budget->free[g] -= num_blocks;
  return true;
}

void Scheduler::CountDraining(const ScheduleInput& input, Budget* budget) const {
  if (budget->draining_counted) return;
  budget->draining_counted = true;
  for (const Sequence* s : input.draining) {
    for (int g = 0; g < kv_.num_groups(); ++g) {
      budget->draining[static_cast<size_t>(g)] += kv_.Releasable(s->table, g);
    }
  }
}

void Scheduler::Preempt(Sequence* victim, Budget* budget, SchedulePlan* plan) const {
  PerGroup& back = victim->rows_in_flight > 0 ? budget->draining : budget->free;
  for (int g = 0; g < kv_.num_groups(); ++g) {
    back[static_cast<size_t>(g)] += kv_.Releasable(victim->table, g);
  }
  plan->preempted.push_back(victim);
}

void Scheduler::PreemptForRank(const ScheduleInput& input, Budget* budget, SchedulePlan* plan) {
  // One at a time: what the last one gives back has to come in first.
  if (num_kept_ == 0 || !plan->preempted.empty() || !input.draining.empty()) return;
  Sequence* victim = input.running[num_kept_ - 1];
  const auto first = std::find_if(input.waiting.begin(), input.waiting.end(),
                                  [](const Sequence* s) { return MayStart(*s); });
  if (first == input.waiting.end() || (*first)->rank >= victim->rank) return;
  if (budget->free_slots > 0 && Fits(**first, HitOf(**first), *budget, num_kept_)) return;
  if (!plan->rows.empty() && plan->rows.back().sequence == victim) plan->rows.pop_back();
  --num_kept_;
  Preempt(victim, budget, plan);
}

PrefixHit Scheduler::HitOf(const Sequence& sequence) const {
  if (!sequence.request.read_prefix_cache || sequence.chain.empty()) return {};
  // The last token is always computed: its logits are needed.
  const int32_t most = (static_cast<int32_t>(sequence.tokens.size()) - 1) / kv_.block_size();
  return kv_.Lookup(sequence.chain, most);
}

bool Scheduler::Fits(const Sequence& sequence, const PrefixHit& hit, const Budget& budget,
                     size_t num_running) const {
  for (int g = 0; g < kv_.num_groups(); ++g) {
    const size_t i = static_cast<size_t>(g);
    const int32_t need =
        kv_.PeakBlocks(g, static_cast<int32_t>(sequence.tokens.size())) - hit.held[i];
    // Besides what running prompts need, each running sequence keeps room for one block more, so
    // that a start is not undone at once.
    const int32_t spoken_for = hit.idle[i] + budget.reserved[i] + static_cast<int32_t>(num_running);
    if (std::max(need, 0) > budget.free[i] - spoken_for) return false;
  }
  return true;
}

int32_t Scheduler::NextToStart(const ScheduleInput& input, uint64_t starts, bool* promoted) {
  const auto open = [&](size_t i) { return taken_[i] == 0 && MayStart(*input.waiting[i]); };
  *promoted = false;
  while (next_waiting_ < input.waiting.size() && !open(next_waiting_)) ++next_waiting_;
  if (next_waiting_ == input.waiting.size()) return -1;
  if ((starts + 1) % kByAge != 0) return static_cast<int32_t>(next_waiting_);
  size_t oldest = next_waiting_;
  for (size_t i = next_waiting_ + 1; i < input.waiting.size(); ++i) {
    if (input.waiting[i]->arrival < input.waiting[oldest]->arrival && open(i)) oldest = i;
  }
  *promoted = oldest != next_waiting_;
  return static_cast<int32_t>(oldest);
}

void Scheduler::StartWaiting(const ScheduleInput& input, Budget* budget, SchedulePlan* plan) {
  if (input.waiting.empty() || budget->free_slots == 0) return;
  taken_.assign(input.waiting.size(), 0);
  next_waiting_ = 0;
  size_t num_running = num_kept_;
  while (budget->free_slots > 0) {
    bool promoted = false;
    const int32_t index = NextToStart(input, input.starts + plan->started.size(), &promoted);
    if (index < 0) return;
    Sequence* s = input.waiting[static_cast<size_t>(index)];
    const PrefixHit hit = HitOf(*s);
    // Strictly in order: a small one that would fit must not overtake a large one for ever.
    if (!Fits(*s, hit, *budget, num_running)) return;
    taken_[static_cast<size_t>(index)] = 1;
    plan->started.push_back({s, hit.num_blocks, promoted});
    --budget->free_slots;
    ++num_running;
    const int32_t total = static_cast<int32_t>(s->tokens.size());
    const int32_t begin = hit.num_blocks * kv_.block_size();
    const int32_t edge = (begin / config_.prefill_chunk + 1) * config_.prefill_chunk;
    const int32_t tokens = std::min(edge, total) - begin;
    int32_t new_blocks = 0;
    if (tokens <= budget->prompt_tokens) {
      budget->prompt_tokens -= tokens;
      plan->rows.push_back({s, tokens});
      new_blocks = kv_.BlocksFor(begin + tokens) - hit.num_blocks;
    }
    for (int g = 0; g < kv_.num_groups(); ++g) {
      const size_t i = static_cast<size_t>(g);
      const int32_t need = kv_.PeakBlocks(g, total) - hit.held[i];
      budget->free[i] -= hit.idle[i] + new_blocks;
      budget->reserved[i] += std::max(need - new_blocks, 0);
    }
  }
}

}  // namespace penstock
