#pragma once

// For tests of the pool: an io thread, and a sink that gathers one request's output.

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "router/pool/pool.h"

namespace penstock {

inline constexpr std::chrono::seconds kPatience{60};

// One thread that runs what is posted, in order.
class IoThread final : public IoExecutor {
 public:
  IoThread() : thread_([this] { Run(); }) {}
  ~IoThread() override {
    Post(nullptr);
    thread_.join();
  }
  void Post(std::function<void()> task) override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    wake_.notify_one();
  }
  // Runs the task there and waits for it.
  void Do(const std::function<void()>& task) {
    std::mutex mutex;
    std::condition_variable done;
    bool finished = false;
    Post([&] {
      task();
      std::lock_guard<std::mutex> lock(mutex);
      finished = true;
      done.notify_one();
    });
    std::unique_lock<std::mutex> lock(mutex);
    done.wait(lock, [&] { return finished; });
  }

 private:
  void Run() {
    for (;;) {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [this] { return !tasks_.empty(); });
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      if (task == nullptr) return;
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  std::thread thread_;
};

// One request. Submit and everything the pool calls run on the io thread; waiting is for the test.
class PoolCall final : public GenerationSink {
 public:
  PoolCall(WorkerPool& pool, IoThread& io, GenerationRequest request) : io_(io) {
    io_.Do([&] { handle_ = pool.Submit(std::move(request), io_, *this); });
  }
  ~PoolCall() override {
    io_.Do([this] { handle_.reset(); });
  }

  void Cancel() {
    io_.Do([this] { handle_->Cancel(); });
  }
  // False when the time was over first.
  bool WaitForTokens(size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return ids_.size() >= count || finished_; }) &&
           ids_.size() >= count;
  }
  const GenerationFinish& WaitForFinish() {
    std::unique_lock<std::mutex> lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, [this] { return finished_; }));
    return finish_;
  }
  std::vector<int32_t> ids() {
    std::lock_guard<std::mutex> lock(mutex_);
    return ids_;
  }
  std::vector<GenerationStart> starts() {
    std::lock_guard<std::mutex> lock(mutex_);
    return starts_;
  }
  bool accepted() {
    std::lock_guard<std::mutex> lock(mutex_);
    return accepted_ > 0;
  }

  void OnAccepted() override {
    std::lock_guard<std::mutex> lock(mutex_);
    EXPECT_EQ(++accepted_, 1);
  }
  void OnStarted(const GenerationStart& start) override {
    std::lock_guard<std::mutex> lock(mutex_);
    EXPECT_EQ(accepted_, 1);
    EXPECT_TRUE(ids_.empty() || !starts_.empty()) << "before the first token";
    starts_.push_back(start);
  }
  void OnLogprobs(GenerationLogprobs logprobs) override {
    std::lock_guard<std::mutex> lock(mutex_);
    EXPECT_EQ(logprobs.index, static_cast<int32_t>(ids_.size())) << "before its token";
    ++logprobs_;
  }
  void OnToken(int32_t token_id, int32_t index) override {
    std::lock_guard<std::mutex> lock(mutex_);
    EXPECT_EQ(accepted_, 1);
    EXPECT_EQ(index, static_cast<int32_t>(ids_.size())) << "none repeated, none skipped";
    ids_.push_back(token_id);
    changed_.notify_all();
  }
  void OnStepEnd() override {}
  void OnFinish(GenerationFinish finish) override {
    std::lock_guard<std::mutex> lock(mutex_);
    EXPECT_FALSE(finished_);
    finish_ = std::move(finish);
    finished_ = true;
    changed_.notify_all();
  }

 private:
  IoThread& io_;
  std::unique_ptr<GenerationHandle> handle_;  // the io thread's
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int32_t> ids_;
  std::vector<GenerationStart> starts_;
  int accepted_ = 0;
  int logprobs_ = 0;
  bool finished_ = false;
  GenerationFinish finish_;
};

// Polls what only time changes (connections, heartbeats).
template <typename Predicate>
bool Eventually(Predicate done, std::chrono::milliseconds patience = kPatience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

inline int ReadyWorkers(const WorkerPool& pool) {
  int ready = 0;
  for (const WorkerStatus& worker : pool.workers()) ready += worker.ready ? 1 : 0;
  return ready;
}
inline int InFlight(const WorkerPool& pool) {
  int in_flight = 0;
  for (const WorkerStatus& worker : pool.workers()) in_flight += worker.in_flight;
  return in_flight;
}

}  // namespace penstock
