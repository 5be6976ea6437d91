#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "common/rpc/rpc_status.h"
#include "penstock/v1/worker.pb.h"
#include "worker/service/wire.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

const RequestLimits kLimits = {.max_model_len = 100, .vocab_size = 50, .eos_token_ids = {2, 3}};

v1::Submit Valid() {
  v1::Submit submit;
  submit.set_request_id(7);
  for (const int32_t id : {10, 11, 12}) submit.add_prompt_ids(id);
  v1::GenerationParams* params = submit.mutable_params();
  params->set_max_tokens(20);
  v1::SamplingParams* sampling = params->mutable_sampling();
  sampling->set_temperature(1);
  sampling->set_top_p(1);
  sampling->set_repetition_penalty(1);
  sampling->set_seed(1);
  return submit;
}

TEST(TranslateTest, EverythingArrives) {
  v1::Submit submit = Valid();
  submit.add_output_token_ids(20);
  v1::GenerationParams* params = submit.mutable_params();
  params->set_min_tokens(4);
  params->add_stop_token_ids(30);
  params->set_top_logprobs(5);
  params->set_processed_logprobs(true);
  params->set_priority(-3);
  params->set_deadline_ms(10'000);
  params->set_cache_salt("salt");
  params->set_group_id(9);
  v1::SamplingParams* sampling = params->mutable_sampling();
  sampling->set_temperature(0.5);
  sampling->set_top_p(0.25);
  sampling->set_top_k(40);
  sampling->set_min_p(0.125);
  sampling->set_presence_penalty(-1);
  sampling->set_frequency_penalty(2);
  sampling->set_repetition_penalty(1.5);
  (*sampling->mutable_logit_bias())[8] = -100;
  (*sampling->mutable_logit_bias())[4] = 100;
  sampling->add_allowed_token_ids(8);
  sampling->set_seed(std::numeric_limits<uint64_t>::max());
  sampling->set_choice(2);

  const int64_t before = SteadyNowNs();
  const auto request = Translate(submit, kLimits);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(Value(request->id), 7u);
  EXPECT_THAT(request->prompt_ids, ElementsAre(10, 11, 12));
  EXPECT_THAT(request->output_ids, ElementsAre(20));
  EXPECT_EQ(request->max_tokens, 20);
  EXPECT_THAT(request->eos_ids, ElementsAre(2, 3));
  EXPECT_THAT(request->stop_token_ids, ElementsAre(30));
  EXPECT_EQ(request->priority, -3);
  EXPECT_EQ(request->cache_salt, "salt");
  EXPECT_EQ(request->group_id, 9u);
  EXPECT_GE(request->deadline_ns, before + 10'000'000'000);
  EXPECT_LT(request->deadline_ns, before + 20'000'000'000);
  const SamplingParams& out = request->sampling;
  EXPECT_EQ(out.temperature, 0.5f);
  EXPECT_EQ(out.top_p, 0.25f);
  EXPECT_EQ(out.top_k, 40);
  EXPECT_EQ(out.min_p, 0.125f);
  EXPECT_EQ(out.presence_penalty, -1);
  EXPECT_EQ(out.frequency_penalty, 2);
  EXPECT_EQ(out.repetition_penalty, 1.5f);
  EXPECT_THAT(out.logit_bias, ElementsAre(std::pair(4, 100.0f), std::pair(8, -100.0f)));
  EXPECT_THAT(out.allowed_token_ids, ElementsAre(8));
  EXPECT_EQ(out.seed, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(out.choice, 2u);
  EXPECT_EQ(out.min_tokens, 4);
  EXPECT_THAT(out.eos_and_stop_ids, ElementsAre(2, 3, 30));
  EXPECT_EQ(out.top_logprobs, 5);
  EXPECT_TRUE(out.processed_logprobs);
}

TEST(TranslateTest, IgnoreEosDropsTheModelsIdsAndNeverTheCallers) {
  v1::Submit submit = Valid();
  submit.mutable_params()->set_ignore_eos(true);
  submit.mutable_params()->add_stop_token_ids(3);
  const auto request = Translate(submit, kLimits);
  ASSERT_TRUE(request.ok());
  EXPECT_TRUE(request->eos_ids.empty());
  EXPECT_THAT(request->stop_token_ids, ElementsAre(3));
  EXPECT_THAT(request->sampling.eos_and_stop_ids, ElementsAre(3));
}

struct BadCase {
  std::string field;
  std::function<void(v1::Submit*)> spoil;
};

TEST(TranslateTest, EveryBadValueIsRefusedByName) {
  const auto sampling = [](auto set) {
    return [set](v1::Submit* s) { set(s->mutable_params()->mutable_sampling()); };
  };
  const auto params = [](auto set) { return [set](v1::Submit* s) { set(s->mutable_params()); }; };
  std::vector<BadCase> cases = {
      {"prompt_ids", [](v1::Submit* s) { s->clear_prompt_ids(); }},
      {"prompt_ids", [](v1::Submit* s) { s->add_prompt_ids(50); }},
      {"prompt_ids", [](v1::Submit* s) { s->add_prompt_ids(-1); }},
      {"output_token_ids", [](v1::Submit* s) { s->add_output_token_ids(50); }},
      {"output_token_ids",
       [](v1::Submit* s) {
         for (int i = 0; i < 20; ++i) s->add_output_token_ids(1);
       }},
      {"max_tokens", params([](auto* p) { p->set_max_tokens(0); })},
      {"max_tokens", params([](auto* p) { p->set_max_tokens(-5); })},
      {"max_tokens", params([](auto* p) { p->set_max_tokens(98); })},
      {"max_tokens",
       params([](auto* p) { p->set_max_tokens(std::numeric_limits<int32_t>::max()); })},
      {"min_tokens", params([](auto* p) { p->set_min_tokens(-1); })},
      {"min_tokens", params([](auto* p) { p->set_min_tokens(21); })},
      {"stop_token_ids", params([](auto* p) { p->add_stop_token_ids(50); })},
      {"stop_token_ids", params([](auto* p) {
         for (int i = 0; i < 1025; ++i) p->add_stop_token_ids(1);
       })},
      {"top_logprobs", params([](auto* p) { p->set_top_logprobs(-1); })},
      {"top_logprobs", params([](auto* p) { p->set_top_logprobs(21); })},
      {"deadline_ms", params([](auto* p) { p->set_deadline_ms(-1); })},
      {"cache_salt", params([](auto* p) { p->set_cache_salt(std::string(5000, 'x')); })},
      {"top_k", sampling([](auto* s) { s->set_top_k(-1); })},
      {"logit_bias", sampling([](auto* s) { (*s->mutable_logit_bias())[50] = 1; })},
      {"logit_bias", sampling([](auto* s) { (*s->mutable_logit_bias())[5] = 101; })},
      {"logit_bias", sampling([](auto* s) { (*s->mutable_logit_bias())[5] = kNan; })},
      {"allowed_token_ids", sampling([](auto* s) { s->add_allowed_token_ids(-2); })},
      {"repetition_penalty", sampling([](auto* s) { s->set_repetition_penalty(0); })},
  };
  for (const float bad : {kNan, kInf, -kInf, -3.0f, 1e9f}) {
    cases.push_back({"temperature", sampling([bad](auto* s) { s->set_temperature(bad); })});
    cases.push_back({"top_p", sampling([bad](auto* s) { s->set_top_p(bad); })});
    cases.push_back({"min_p", sampling([bad](auto* s) { s->set_min_p(bad); })});
    cases.push_back(
        {"presence_penalty", sampling([bad](auto* s) { s->set_presence_penalty(bad); })});
    cases.push_back(
        {"frequency_penalty", sampling([bad](auto* s) { s->set_frequency_penalty(bad); })});
    cases.push_back(
        {"repetition_penalty", sampling([bad](auto* s) { s->set_repetition_penalty(bad); })});
  }
  for (const BadCase& bad : cases) {
    v1::Submit submit = Valid();
    bad.spoil(&submit);
    const absl::Status status = Translate(submit, kLimits).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << submit.DebugString();
    EXPECT_EQ(FieldOf(status), bad.field) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.field));
  }
}

TEST(TranslateTest, WhatIsNotThereYetSaysSo) {
  const std::vector<BadCase> cases = {
      {"prompt_logprobs", [](v1::Submit* s) { s->mutable_params()->set_prompt_logprobs(0); }},
      {"json_schema",
       [](v1::Submit* s) { s->mutable_params()->mutable_constraint()->set_json_schema("{}"); }},
      {"regex", [](v1::Submit* s) { s->mutable_params()->mutable_constraint()->set_regex("a"); }},
      {"grammar",
       [](v1::Submit* s) { s->mutable_params()->mutable_constraint()->set_grammar("a"); }},
      {"structural_tag",
       [](v1::Submit* s) { s->mutable_params()->mutable_constraint()->set_structural_tag("a"); }},
      {"bad_words", [](v1::Submit* s) { s->mutable_params()->add_bad_words("a"); }},
      {"adapter_id", [](v1::Submit* s) { s->mutable_params()->set_adapter_id("a"); }},
      {"output", [](v1::Submit* s) { s->mutable_params()->set_output(v1::OUTPUT_KIND_SCORE); }},
  };
  for (const BadCase& bad : cases) {
    v1::Submit submit = Valid();
    bad.spoil(&submit);
    const absl::Status status = Translate(submit, kLimits).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << bad.field;
    EXPECT_EQ(FieldOf(status), bad.field);
  }
}

TEST(TranslateTest, TheWholeContextMayBeUsed) {
  v1::Submit submit = Valid();
  submit.mutable_params()->set_max_tokens(97);
  EXPECT_TRUE(Translate(submit, kLimits).ok());
}

TEST(PackTest, AStepsColumnsAndRecords) {
  StepEvents events;
  events.step = 5;
  events.accepted = {RequestId{1}};
  events.tokens = {{RequestId{1}, 40, 0}, {RequestId{2}, 41, 9}};
  events.logprobs.push_back({RequestId{1}, 0, 3, {{40, -1.5f}, {7, -0.5f}}});
  events.finished.push_back({.id = RequestId{2},
                             .reason = FinishReason::kError,
                             .status = WithField(absl::ResourceExhaustedError("full"), "x"),
                             .prompt_tokens = 4,
                             .queue_ns = 1'500'000'000});
  v1::SessionDown down;
  PackEvents(events, &down);
  EXPECT_EQ(down.accepted(0).request_id(), 1u);
  EXPECT_EQ(down.step().step(), 5u);
  EXPECT_THAT(down.step().request_id(), ElementsAre(1, 2));
  EXPECT_THAT(down.step().token_id(), ElementsAre(40, 41));
  EXPECT_THAT(down.step().index(), ElementsAre(0, 9));
  EXPECT_EQ(down.logprobs(0).rank(), 3);
  EXPECT_EQ(down.logprobs(0).top(1).token_id(), 7);
  EXPECT_EQ(down.finished(0).reason(), v1::FINISH_REASON_ERROR);
  EXPECT_EQ(down.finished(0).status_code(), 8);
  EXPECT_EQ(down.finished(0).status_field(), "x");
  EXPECT_EQ(down.finished(0).queue_seconds(), 1.5);
}

}  // namespace
}  // namespace penstock
