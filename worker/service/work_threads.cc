#include "worker/service/work_threads.h"

#include <algorithm>
#include <utility>

namespace penstock {

WorkThreads::WorkThreads(int num_threads) {
  threads_.reserve(num_threads);
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { Run(); });
}

WorkThreads::~WorkThreads() { Stop(); }

void WorkThreads::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void WorkThreads::Post(std::function<void()> task) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void WorkThreads::Every(std::chrono::milliseconds interval, std::function<bool()> task) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    periodic_.push_back({Clock::now() + interval, interval, std::move(task)});
  }
  wake_.notify_one();
}

size_t WorkThreads::EarliestPeriodic() const {
  const auto earliest =
      std::min_element(periodic_.begin(), periodic_.end(),
                       [](const Periodic& a, const Periodic& b) { return a.due < b.due; });
  return static_cast<size_t>(earliest - periodic_.begin());
}

void WorkThreads::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    const size_t next = EarliestPeriodic();
    const bool due = next < periodic_.size() && periodic_[next].due <= Clock::now();
    if (due && !stopping_) {
      RunPeriodic(&lock, next);
    } else if (!tasks_.empty()) {
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    } else if (stopping_) {
      return;
    } else if (next < periodic_.size()) {
      wake_.wait_until(lock, periodic_[next].due);
    } else {
      wake_.wait(lock);
    }
  }
}

// Takes the task out while it runs, so that another thread cannot run it at the same time.
void WorkThreads::RunPeriodic(std::unique_lock<std::mutex>* lock, size_t index) {
  Periodic periodic = std::move(periodic_[index]);
  periodic_.erase(periodic_.begin() + static_cast<std::ptrdiff_t>(index));
  lock->unlock();
  const bool again = periodic.task();
  periodic.due = Clock::now() + periodic.interval;
  lock->lock();
  if (again) periodic_.push_back(std::move(periodic));
}

}  // namespace penstock
