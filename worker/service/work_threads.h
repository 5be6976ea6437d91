#pragma once

// A small fixed pool that takes work off the engine's and gRPC's threads: packing messages, text.
// Every member may be called from any thread.

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace penstock {

class WorkThreads {
 public:
  explicit WorkThreads(int num_threads);
  ~WorkThreads();  // as Stop
  WorkThreads(const WorkThreads&) = delete;
  WorkThreads& operator=(const WorkThreads&) = delete;

  // Runs what is queued, then joins. Periodic tasks do not run again; what is posted later never
  // runs. For the owner, once, while others may still Post.
  void Stop();
  // Tasks start in order of Post. They must not throw and not block for long.
  void Post(std::function<void()> task);
  // Runs the task every interval (first after one interval) until it returns false.
  void Every(std::chrono::milliseconds interval, std::function<bool()> task);

 private:
  using Clock = std::chrono::steady_clock;
  struct Periodic {
    Clock::time_point due;
    std::chrono::milliseconds interval;
    std::function<bool()> task;
  };

  void Run();
  void RunPeriodic(std::unique_lock<std::mutex>* lock, size_t index);
  size_t EarliestPeriodic() const;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;  // guarded by mutex_, like the rest
  std::vector<Periodic> periodic_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace penstock
