#include "kernels/cpu/thread_pool.h"

namespace penstock::kernels {
namespace {

constexpr uint64_t kOpen = uint64_t{1} << 31;
constexpr uint64_t kInside = kOpen - 1;
constexpr int kSpins = 4000;  // about 50 to 100 us: longer than the gap between two loops

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  for (int i = 1; i < num_threads; ++i) workers_.emplace_back([this, i] { WorkerMain(i); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  wake_.fetch_add(1);
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::DoPieces(int thread) {
  for (;;) {
    const int64_t first = next_.fetch_add(grain_, std::memory_order_relaxed);
    if (first >= count_) return;
    const int64_t last = first + grain_ < count_ ? first + grain_ : count_;
    body_(context_, first, last, thread);
  }
}

void ThreadPool::RunLoop(int64_t count, int64_t grain, Body body, void* context) {
  body_ = body;
  context_ = context;
  count_ = count;
  grain_ = grain;
  next_.store(0, std::memory_order_relaxed);
  const uint64_t loop = (state_.load(std::memory_order_relaxed) >> 32) + 1;
  state_.store(loop << 32 | kOpen);  // seq_cst: before the look at sleepers_
  if (sleepers_.load() > 0) {
    wake_.fetch_add(1);
    wake_.notify_all();
  }
  DoPieces(0);
  state_.fetch_and(~kOpen, std::memory_order_acq_rel);
  for (int spins = 0; (state_.load(std::memory_order_acquire) & kInside) != 0; ++spins) {
    if (spins < kSpins) {
      Pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void ThreadPool::WorkerMain(int thread) {
  uint64_t seen = 0;  // the last loop that this worker knows
  int spins = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    uint64_t state = state_.load(std::memory_order_acquire);
    if (state >> 32 != seen && (state & kOpen) != 0) {
      if (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel)) continue;
      seen = state >> 32;
      DoPieces(thread);
      state_.fetch_sub(1, std::memory_order_acq_rel);
      spins = 0;
      continue;
    }
    if (++spins < kSpins) {
      Pause();
      continue;
    }
    const uint32_t ticket = wake_.load();
    sleepers_.fetch_add(1);
    state = state_.load();  // seq_cst: after sleepers_ is seen, the owner wakes
    if ((state >> 32 == seen || (state & kOpen) == 0) && !stop_.load()) wake_.wait(ticket);
    sleepers_.fetch_sub(1);
    spins = 0;
  }
}

}  // namespace penstock::kernels
