#include "worker/engine/request_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr EngineLimits kLimits{.max_model_len = 100,
                               .max_num_seqs = 4,
                               .max_num_batched_tokens = 64,
                               .prefill_chunk = 16,
                               .block_size = 4,
                               .vocab_size = 50};

EngineRequest Good() {
  EngineRequest r;
  r.prompt_ids = {1, 2, 3};
  r.max_tokens = 10;
  return r;
}

TEST(RequestCheckTest, EveryBadFieldIsNamed) {
  const std::vector<std::pair<const char*, std::function<void(EngineRequest*)>>> cases = {
      {"prompt_ids: ", [](auto* r) { r->prompt_ids.clear(); }},
      {"prompt_ids: id 50 at index 1", [](auto* r) { r->prompt_ids[1] = 50; }},
      {"prompt_ids: id -1 at index 0", [](auto* r) { r->prompt_ids[0] = -1; }},
      {"max_tokens: 0", [](auto* r) { r->max_tokens = 0; }},
      {"max_tokens: -5", [](auto* r) { r->max_tokens = -5; }},
      {"max_tokens: 3 prompt tokens and max_tokens 98 are 101",
       [](auto* r) { r->max_tokens = 98; }},
      {"max_tokens: 3 prompt tokens and max_tokens 2147483647 are 2147483650",
       [](auto* r) { r->max_tokens = std::numeric_limits<int32_t>::max(); }},
      {"output_token_ids: 11", [](auto* r) { r->output_ids.assign(11, 1); }},
      {"output_token_ids: id 51", [](auto* r) { r->output_ids = {51}; }},
      {"min_tokens: 11", [](auto* r) { r->sampling.min_tokens = 11; }},
      {"min_tokens: -1", [](auto* r) { r->sampling.min_tokens = -1; }},
      {"temperature: nan", [](auto* r) { r->sampling.temperature = kNan; }},
      {"temperature: inf", [](auto* r) { r->sampling.temperature = kInf; }},
      {"temperature: -1", [](auto* r) { r->sampling.temperature = -1; }},
      {"top_p: nan", [](auto* r) { r->sampling.top_p = kNan; }},
      {"top_p: 1.5", [](auto* r) { r->sampling.top_p = 1.5f; }},
      {"min_p: 2", [](auto* r) { r->sampling.min_p = 2; }},
      {"top_k: -1", [](auto* r) { r->sampling.top_k = -1; }},
      {"presence_penalty: 10", [](auto* r) { r->sampling.presence_penalty = 10; }},
      {"frequency_penalty: nan", [](auto* r) { r->sampling.frequency_penalty = kNan; }},
      {"repetition_penalty: 0", [](auto* r) { r->sampling.repetition_penalty = 0; }},
      {"repetition_penalty: nan", [](auto* r) { r->sampling.repetition_penalty = kNan; }},
      {"logit_bias: id 50",
       [](auto* r) {
         r->sampling.logit_bias = {{50, 1.0f}};
       }},
      {"logit_bias: inf",
       [](auto* r) {
         r->sampling.logit_bias = {{5, kInf}};
       }},
      {"allowed_token_ids: id 99", [](auto* r) { r->sampling.allowed_token_ids = {99}; }},
      {"top_logprobs: 51", [](auto* r) { r->sampling.top_logprobs = 51; }},
      {"adapter_id: ", [](auto* r) { r->adapter_id = 3; }},
  };
  for (const auto& [message, spoil] : cases) {
    EngineRequest r = Good();
    spoil(&r);
    const absl::Status status = CheckRequest(r, kLimits);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(std::string(status.message()), StartsWith(message));
  }
}

TEST(RequestCheckTest, TheWholeContextMayBeUsed) {
  EngineRequest r = Good();
  r.max_tokens = 97;
  EXPECT_TRUE(CheckRequest(r, kLimits).ok());
}

TEST(RequestCheckTest, SequenceHasSortedStopsMaskAndHashes) {
  EngineRequest r = Good();
  r.prompt_ids = {1, 2, 3, 4, 5, 6};
  r.output_ids = {7, 8, 9};
  r.eos_ids = {9, 3, 9};
  r.stop_token_ids = {5, 1};
  r.sampling.min_tokens = 2;
  const std::string fingerprint = "m";
  const auto s = MakeSequence(r, kLimits, &fingerprint).value();
  EXPECT_THAT(s->request.eos_ids, ElementsAre(3, 9));
  EXPECT_THAT(s->request.stop_token_ids, ElementsAre(1, 5));
  EXPECT_THAT(s->request.sampling.eos_and_stop_ids, ElementsAre(1, 3, 5, 9));
  EXPECT_THAT(s->tokens, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_EQ(s->num_prompt, 6);
  EXPECT_EQ(s->num_output(), 3);
  EXPECT_EQ(s->chain.size(), 2u);
  EXPECT_THAT(MakeSequence(r, kLimits, nullptr).value()->chain, IsEmpty());
  r.sampling.min_tokens = 0;
  EXPECT_THAT(MakeSequence(r, kLimits, nullptr).value()->request.sampling.eos_and_stop_ids,
              IsEmpty());
}

}  // namespace
}  // namespace penstock
