#include "worker/service/work_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace penstock {
namespace {

TEST(WorkThreadsTest, OneThreadRunsTasksInOrderAndFinishesThemAll) {
  std::vector<int> order;
  {
    WorkThreads threads(1);
    for (int i = 0; i < 1000; ++i) threads.Post([&order, i] { order.push_back(i); });
  }
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[i], i);
}

TEST(WorkThreadsTest, SeveralThreadsWorkAtOnce) {
  std::promise<void> first, second;
  WorkThreads threads(2);
  threads.Post([&] {
    first.set_value();
    second.get_future().wait();  // only the other thread can end this
  });
  threads.Post([&] {
    first.get_future().wait();
    second.set_value();
  });
}

TEST(WorkThreadsTest, PeriodicTasksRunUntilTheySayNoAndNeverTwiceAtOnce) {
  std::atomic<int> runs = 0, inside = 0;
  std::promise<void> ended, later;
  WorkThreads threads(3);
  threads.Every(std::chrono::milliseconds(1), [&] {
    EXPECT_EQ(++inside, 1);
    --inside;
    if (++runs < 20) return true;
    ended.set_value();
    return false;
  });
  ended.get_future().wait();
  threads.Every(std::chrono::milliseconds(20), [&] {
    later.set_value();
    return false;
  });
  later.get_future().wait();
  EXPECT_EQ(runs, 20);
}

TEST(WorkThreadsTest, DestructionDoesNotWaitForPeriodicTasks) {
  WorkThreads threads(1);
  threads.Every(std::chrono::hours(1), [] { return true; });
}

}  // namespace
}  // namespace penstock
