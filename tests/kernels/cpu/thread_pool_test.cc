#include "kernels/cpu/thread_pool.h"

#include <chrono>

#include "gtest/gtest.h"

namespace penstock::kernels {
namespace {

TEST(ThreadPoolTest, EveryIndexOnceOverManyLoops) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int loop = 0; loop < 2000; ++loop) {
      const int64_t count = loop % 67;
      std::vector<int> seen(static_cast<size_t>(count));
      pool.Run(count, 1 + loop % 4, [&](int64_t first, int64_t last, int thread) {
        EXPECT_GE(thread, 0);
        EXPECT_LT(thread, threads);
        for (int64_t i = first; i < last; ++i) ++seen[static_cast<size_t>(i)];
      });
      for (const int times : seen) ASSERT_EQ(times, 1);
    }
  }
}

TEST(ThreadPoolTest, SleepingWorkersWakeUp) {
  ThreadPool pool(3);
  for (int loop = 0; loop < 20; ++loop) {
    // Longer than the workers spin; the loop's pieces wait for one another, so both must come.
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int> inside{0};
    pool.Run(2, 1, [&](int64_t, int64_t, int) {
      inside.fetch_add(1);
      while (inside.load() < 2) std::this_thread::yield();
    });
    EXPECT_EQ(inside.load(), 2);
  }
}

}  // namespace
}  // namespace penstock::kernels
