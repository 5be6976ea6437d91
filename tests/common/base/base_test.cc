#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "common/base/bounded_queue.h"
#include "common/base/sha256.h"
#include "common/base/status.h"

namespace penstock {
namespace {

absl::StatusOr<int> Half(int value) {
  if (value % 2 != 0) return InvalidArgument("%d is odd", value);
  return value / 2;
}

absl::StatusOr<int> Quarter(int value) {
  ASSIGN_OR_RETURN(const int half, Half(value));
  ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}

TEST(StatusMacros, ReturnTheFirstError) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).status().message(), "3 is odd");
}

TEST(BoundedQueue, RefusesBeyondItsBoundAndKeepsTheItem) {
  BoundedQueue<std::string> queue(1);
  EXPECT_TRUE(queue.TryPush("a"));
  std::string second = "b";
  EXPECT_FALSE(queue.TryPush(std::move(second)));
  EXPECT_EQ(second, "b");  // NOLINT(bugprone-use-after-move): a refused item is untouched
  std::vector<std::string> items;
  queue.Drain(&items);
  EXPECT_EQ(items, std::vector<std::string>{"a"});
  queue.Close();
  EXPECT_FALSE(queue.TryPush("c"));
}

TEST(BoundedQueue, AProducerWakesTheConsumer) {
  BoundedQueue<int> queue(4);
  std::thread producer([&] { EXPECT_TRUE(queue.TryPush(7)); });
  queue.WaitFor(std::chrono::seconds(30));
  std::vector<int> items;
  queue.Drain(&items);
  producer.join();
  EXPECT_EQ(items, std::vector<int>{7});
}

TEST(Sha256, KnownDigests) {
  EXPECT_EQ(HexEncode(Sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256Stream stream;
  stream.Update("a", 1);
  stream.Update("bc", 2);
  EXPECT_EQ(stream.Finish(), Sha256("abc"));
}

}  // namespace
}  // namespace penstock
