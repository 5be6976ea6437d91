#pragma once

// A few threads that share loops of the forward pass. The owner takes part in each loop; workers
// spin for a while between loops, then sleep. A worker that comes late (its core is busy elsewhere)
// is not waited for: it finds the loop closed. No allocation per loop. Run is for one thread only,
// the pool's owner.

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace penstock::kernels {

class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);  // the caller's included; >= 1
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls fn(first, last, thread) over pieces of [0, count) of at most `grain`, on any thread;
  // returns when all are done. thread < num_threads().
  template <typename Fn>
  void Run(int64_t count, int64_t grain, Fn&& fn) {
    if (count <= 0) return;
    if (workers_.empty() || count <= grain) return fn(int64_t{0}, count, 0);
    RunLoop(
        count, grain,
        [](void* context, int64_t first, int64_t last, int thread) {
          (*static_cast<std::remove_reference_t<Fn>*>(context))(first, last, thread);
        },
        &fn);
  }

 private:
  using Body = void (*)(void* context, int64_t first, int64_t last, int thread);
  void RunLoop(int64_t count, int64_t grain, Body body, void* context);
  void WorkerMain(int thread);
  void DoPieces(int thread);

  // The loop now running. Written by the owner while no worker is in it.
  Body body_ = nullptr;
  void* context_ = nullptr;
  int64_t count_ = 0;
  int64_t grain_ = 1;
  alignas(64) std::atomic<int64_t> next_{0};
  // Loop number in the high half; bit 31: open; below: workers inside.
  alignas(64) std::atomic<uint64_t> state_{0};
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<uint32_t> wake_{0};  // changes when sleepers must look again
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace penstock::kernels
