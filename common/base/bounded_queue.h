#pragma once

// A multi-producer queue with a fixed bound. TryPush never blocks; a full queue is the caller's
// business (it refuses the request). One consumer drains everything at once, or waits.

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace penstock {

template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) { items_.reserve(capacity); }

  // False when the queue is full or closed; item is left untouched then.
  [[nodiscard]] bool TryPush(T&& item) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (closed_ || items_.size() >= capacity_) return false;
      items_.push_back(std::move(item));
    }
    ready_.notify_one();
    return true;
  }

  // Swaps out everything queued; out's storage is reused for the next batch.
  void Drain(std::vector<T>* out) {
    out->clear();
    std::lock_guard<std::mutex> lock(mutex_);
    items_.swap(*out);
  }

  // Waits until something is queued, Wake() was called, the queue is closed, or the time is over.
  template <typename Duration>
  void WaitFor(Duration timeout) {
    std::unique_lock<std::mutex> lock(mutex_);
    ready_.wait_for(lock, timeout, [this] { return !items_.empty() || closed_ || woken_; });
    woken_ = false;
  }

  void Wake() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      woken_ = true;
    }
    ready_.notify_one();
  }

  void Close() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

  [[nodiscard]] size_t size() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return items_.size();
  }

 private:
  const size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::vector<T> items_;
  bool closed_ = false;
  bool woken_ = false;
};

}  // namespace penstock
