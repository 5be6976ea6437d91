#include "worker/engine/engine_loop.h"

#include <gmock/gmock.h>

#include "tests/worker/engine/engine_harness.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;

// Every test of the loop runs one and two steps deep.
class EngineLoopTest : public ::testing::TestWithParam<int> {
 protected:
  HarnessOptions Options() {
    HarnessOptions o;
    o.runner = SmallRunner();
    o.steps_in_flight = GetParam();
    return o;
  }
  std::vector<TokenId> Alone(const EngineRequest& request) {
    Harness h(Options());
    EXPECT_TRUE(h.Submit(request).ok());
    h.RunUntilIdle();
    h.ExpectEmpty();
    return h.Get(Value(request.id)).tokens;
  }
};
INSTANTIATE_TEST_SUITE_P(Depth, EngineLoopTest, ::testing::Values(1, 2));

TEST_P(EngineLoopTest, OneRequestRunsToItsLength) {
  Harness h(Options());
  ASSERT_TRUE(h.Submit(Request(7, Ids(37), 9)).ok());
  h.RunUntilIdle();
  h.ExpectEmpty();
  EXPECT_THAT(h.Get(7).indices, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
  const FinishEvent& finish = h.Finish(7);
  EXPECT_EQ(finish.reason, FinishReason::kLength);
  EXPECT_EQ(finish.prompt_tokens, 37);
  EXPECT_EQ(finish.completion_tokens, 9);
  EXPECT_EQ(finish.cached_tokens, 0);
  EXPECT_EQ(h.loop().stats().prompt_tokens, 37u);
  EXPECT_EQ(h.loop().stats().generation_tokens, 9u);
}

}  // namespace
}  // namespace penstock
