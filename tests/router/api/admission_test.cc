#include "router/api/admission.h"

#include "gtest/gtest.h"

namespace penstock {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

// Field case 56: bounded in requests and in prompt tokens.
TEST(AdmissionTest, RefusesOverEitherBound) {
  Admission admission({.max_requests = 3, .max_tokens = 100});
  EXPECT_FALSE(admission.Enter(2, 20, 0).has_value());
  EXPECT_FALSE(admission.Enter(1, 10, 0).has_value());
  const auto full = admission.Enter(1, 10, 0);
  ASSERT_TRUE(full.has_value());
  EXPECT_EQ(full->status, 429);
  EXPECT_EQ(full->code, "queue_full");
  EXPECT_GE(full->retry_after_s, 1);
  admission.Leave(10, true, 0);
  EXPECT_TRUE(admission.Enter(1, 81, 0).has_value()) << "too many tokens";
  EXPECT_FALSE(admission.Enter(1, 80, 0).has_value());
  EXPECT_EQ(admission.requests(), 3);
  EXPECT_EQ(admission.tokens(), 100);
}

TEST(AdmissionTest, OneRequestAloneAlwaysEnters) {
  Admission admission({.max_requests = 3, .max_tokens = 100});
  EXPECT_FALSE(admission.Enter(1, 5'000, 0).has_value());
  EXPECT_TRUE(admission.Enter(1, 1, 0).has_value());
}

TEST(AdmissionTest, RetryAfterFollowsTheDrainRate) {
  Admission admission({.max_requests = 100, .max_tokens = 1'000'000});
  EXPECT_FALSE(admission.Enter(100, 100, 0).has_value());
  EXPECT_EQ(admission.RetryAfter(0), 60) << "nothing drains";
  int64_t now = 0;
  for (int i = 0; i < 1'000; ++i) {  // 20 a second
    now += kSecond / 20;
    admission.Leave(1, true, now);
    EXPECT_FALSE(admission.Enter(1, 1, now).has_value());
  }
  EXPECT_NEAR(admission.RetryAfter(now), 5, 1);
  EXPECT_EQ(admission.RetryAfter(now + 1'000 * kSecond), 60);
}

}  // namespace
}  // namespace penstock
