#include "deploy/serve_arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const FlagInfo kRouter[] = {{.name = "--port"},
                            {.name = "--api-key", .multiple = true},
                            {.name = "--served-model-name", .multiple = true},
                            {.name = "--log-level"}};
const FlagInfo kWorker[] = {{.name = "--max-model-len"},
                            {.name = "--served-model-name"},
                            {.name = "--enable-prefix-caching", .takes_value = false},
                            {.name = "--log-level"}};

absl::StatusOr<ServeArguments> Split(std::vector<std::string> arguments) {
  return SplitServeArguments(arguments, kRouter, kWorker);
}

TEST(ServeArguments, EachFlagGoesWhereItIsKnown) {
  const auto split = Split({"model.gguf", "--port", "80", "--max-model-len=32k", "--replicas", "2",
                            "--enable-prefix-caching", "--log-level", "debug"});
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_EQ(split->model, "model.gguf");
  EXPECT_EQ(split->replicas, 2);
  EXPECT_THAT(split->router, ElementsAre("--port=80", "--log-level=debug"));
  EXPECT_THAT(split->worker,
              ElementsAre("--max-model-len=32k", "--enable-prefix-caching", "--log-level=debug"));
}

TEST(ServeArguments, SeveralValuesAsInVllm) {
  const auto split = Split({"m", "--served-model-name", "a", "b", "--api-key", "k1", "k2"});
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_THAT(split->router, ElementsAre("--served-model-name=a", "--served-model-name=b",
                                         "--api-key=k1", "--api-key=k2"));
  EXPECT_THAT(split->worker, ElementsAre("--served-model-name=a"));
}

TEST(ServeArguments, ErrorsNameFlagAndRemedy) {
  const struct {
    std::vector<std::string> arguments;
    const char* message;
  } kCases[] = {
      {{}, "which model?"},
      {{"m", "--prot", "1"}, "did you mean --port?"},
      {{"m", "--max-model-length", "1"}, "did you mean --max-model-len?"},
      {{"m", "--tensor-parallel-size", "2"}, "not supported yet; use --replicas"},
      {{"m", "--port"}, "its value is missing"},
      {{"m", "--port", "--api-key", "k"}, "its value is missing"},
      {{"m", "--replicas", "zero"}, "not a number from 1 to 64"},
      {{"m", "--listen", "x"}, "decided by penstock serve"},
      {{"m", "n"}, "two models"},
  };
  for (const auto& c : kCases) {
    const auto split = Split(c.arguments);
    ASSERT_FALSE(split.ok()) << c.message;
    EXPECT_THAT(std::string(split.status().message()), HasSubstr(c.message));
  }
}

TEST(ServeArguments, LastValueWins) {
  const std::vector<std::string> arguments = {"--port=1", "--host=x", "--port=2"};
  EXPECT_EQ(LastValue(arguments, "--port", "8000"), "2");
  EXPECT_EQ(LastValue(arguments, "--uds", "none"), "none");
}

}  // namespace
}  // namespace penstock
