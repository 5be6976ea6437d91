#pragma once

// A few threads for text work that is too long for an io thread: big bodies, templates, tokenizing.
// Any thread may submit; the queue is bounded.

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace penstock {

class TextPool {
 public:
  TextPool(int threads, size_t max_queued);
  ~TextPool() { Stop(); }
  // False when the queue is full: the task was not taken.
  [[nodiscard]] bool Submit(std::function<void()> task);
  // Runs what is queued, then joins.
  void Stop();

 private:
  void Run();

  const size_t max_queued_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> tasks_;  // guarded by mutex_
  bool stopped_ = false;                     // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace penstock
