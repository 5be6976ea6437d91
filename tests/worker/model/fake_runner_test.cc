#include "worker/model/fake_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

FakeRunnerOptions Small() {
  FakeRunnerOptions o;
  o.vocab_size = 100;
  o.max_model_len = 64;
  o.block_size = 4;
  o.max_num_seqs = 4;
  o.max_num_batched_tokens = 32;
  o.num_blocks = 40;
  o.verify = true;
  o.now_ns = [] { return int64_t{0}; };
  o.sleep_ns = [](int64_t) { ADD_FAILURE() << "slept"; };
  return o;
}

// Feeds one runner by hand, row by row.
class Feeder {
 public:
  explicit Feeder(FakeRunnerOptions o) : runner(FakeRunner::Create(std::move(o)).value()) {}

  void Init(int32_t slot, std::vector<TokenId> prompt, std::vector<TokenId> output = {},
            const SamplingParams& sampling = {}) {
    runner->InitSlot({SlotId{slot}, &sampling, prompt, output});
  }
  // One row of ids (empty = the last sampled one), launched and sampled.
  absl::Status Launch(int32_t slot, int32_t start, std::vector<TokenId> ids,
                      std::vector<BlockId> blocks, int32_t output_index) {
    StepInputBuilder builder;
    builder.Begin(++step, 1);
    const std::span<const BlockId> group(blocks);
    builder.AddRow({.slot = SlotId{slot},
                    .num_tokens = ids.empty() ? 1 : static_cast<int32_t>(ids.size()),
                    .start_position = start,
                    .output_index = output_index,
                    .logits = LogitsKind::kLast},
                   ids, {&group, 1});
    builder.Finish(&input);
    const absl::Status status = runner->LaunchForward(input);
    return status.ok() ? runner->LaunchSample({}) : status;
  }
  TokenId CollectToken() {
    const StepOutput* out = runner->Collect().value();
    EXPECT_EQ(out->tokens.size(), 1u);
    return out->tokens.empty() ? -1 : out->tokens[0];
  }

  std::unique_ptr<FakeRunner> runner;
  StepInput input;
  uint64_t step = 0;
};

std::vector<BlockId> Blocks(std::initializer_list<int32_t> ids) {
  std::vector<BlockId> blocks;
  for (const int32_t id : ids) blocks.push_back(BlockId{id});
  return blocks;
}

TEST(FakeRunnerTest, TokensDependOnHistorySeedAndPositionOnly) {
  const std::vector<TokenId> prompt = {1, 2, 3, 4, 5, 6};
  const auto first_token = [&](uint64_t seed, uint32_t choice, float temperature,
                               std::vector<BlockId> blocks, bool in_two) {
    Feeder f(Small());
    SamplingParams s;
    s.seed = seed;
    s.choice = choice;
    s.temperature = temperature;
    f.Init(2, prompt, {}, s);
    if (!in_two) {
      EXPECT_TRUE(f.Launch(2, 0, prompt, blocks, 0).ok());
      return f.CollectToken();
    }
    EXPECT_TRUE(f.Launch(2, 0, {1, 2, 3, 4}, blocks, -1).ok());
    EXPECT_TRUE(f.runner->Collect().ok());
    EXPECT_TRUE(f.Launch(2, 4, {5, 6}, blocks, 0).ok());
    return f.CollectToken();
  };
  const TokenId token = first_token(1, 0, 1, Blocks({1, 2}), false);
  EXPECT_EQ(first_token(1, 0, 1, Blocks({9, 7}), false), token);
  EXPECT_EQ(first_token(1, 0, 1, Blocks({9, 7}), true), token);
  EXPECT_NE(first_token(2, 0, 1, Blocks({1, 2}), false), token);
  EXPECT_NE(first_token(1, 1, 1, Blocks({1, 2}), false), token);
  EXPECT_EQ(first_token(1, 0, 0, Blocks({1, 2}), false),
            first_token(2, 1, 0, Blocks({1, 2}), false))
      << "greedy";
}

TEST(FakeRunnerTest, DecodesTwoStepsDeepFromTheSlotsLastToken) {
  std::vector<TokenId> tokens;
  for (const bool deep : {false, true}) {
    Feeder f(Small());
    f.Init(1, {7, 8, 9});
    std::vector<TokenId> got;
    ASSERT_TRUE(f.Launch(1, 0, {7, 8, 9}, Blocks({1, 2}), 0).ok());
    if (!deep) got.push_back(f.CollectToken());
    ASSERT_TRUE(f.Launch(1, 3, {}, Blocks({1, 2}), 1).ok());
    got.push_back(f.CollectToken());
    if (deep) got.push_back(f.CollectToken());
    if (tokens.empty()) tokens = got;
    EXPECT_EQ(got, tokens);
  }
}

TEST(FakeRunnerTest, CatchesWhatASchedulerMustNotDo) {
  const std::vector<TokenId> prompt = {1, 2, 3, 4, 5};
  const auto message = [](const absl::Status& status) { return std::string(status.message()); };
  {
    Feeder f(Small());
    f.Init(1, prompt);
    EXPECT_THAT(message(f.Launch(1, 0, {1, 2, 3, 9, 5}, Blocks({1, 2}), 0)),
                HasSubstr("not the sequence's"));
  }
  {
    Feeder f(Small());
    f.Init(1, prompt);
    EXPECT_THAT(message(f.Launch(1, 0, prompt, Blocks({1}), 0)), HasSubstr("too short"));
  }
  {
    Feeder f(Small());
    f.Init(1, prompt);
    EXPECT_THAT(message(f.Launch(1, 4, {5}, Blocks({1, 2}), 0)),
                HasSubstr("does not hold these tokens"));
  }
  {
    Feeder f(Small());
    f.Init(1, prompt);
    EXPECT_THAT(message(f.Launch(1, 0, prompt, Blocks({1, 2}), 1)), HasSubstr("output_index"));
  }
  {  // a prefix of another sequence, not collected yet
    Feeder f(Small());
    f.Init(1, prompt);
    f.Init(2, prompt);
    ASSERT_TRUE(f.Launch(1, 0, {1, 2, 3, 4}, Blocks({1}), -1).ok());
    EXPECT_THAT(message(f.Launch(2, 4, {5}, Blocks({1, 2}), 0)),
                HasSubstr("before it was collected"));
  }
  {  // the same, collected: right
    Feeder f(Small());
    f.Init(1, prompt);
    f.Init(2, prompt);
    ASSERT_TRUE(f.Launch(1, 0, {1, 2, 3, 4}, Blocks({1}), -1).ok());
    ASSERT_TRUE(f.runner->Collect().ok());
    EXPECT_TRUE(f.Launch(2, 4, {5}, Blocks({1, 2}), 0).ok());
  }
  {  // a block taken away from a sequence in flight
    Feeder f(Small());
    f.Init(1, prompt);
    f.Init(2, prompt);
    ASSERT_TRUE(f.Launch(1, 0, {1, 2, 3, 4}, Blocks({1}), -1).ok());
    EXPECT_THAT(message(f.Launch(2, 0, {1, 2, 3, 4}, Blocks({1}), -1)),
                HasSubstr("a step in flight uses"));
  }
}

TEST(FakeRunnerTest, EchoAndScriptsEndWithEos) {
  const auto run = [](FakeRunnerOptions o, uint64_t seed, int count) {
    o.eos_id = 99;
    Feeder f(std::move(o));
    SamplingParams s;
    s.seed = seed;
    f.Init(1, {11, 12}, {}, s);
    std::vector<TokenId> tokens;
    EXPECT_TRUE(f.Launch(1, 0, {11, 12}, Blocks({1, 2, 3}), 0).ok());
    tokens.push_back(f.CollectToken());
    for (int i = 1; i < count; ++i) {
      EXPECT_TRUE(f.Launch(1, 1 + i, {}, Blocks({1, 2, 3}), i).ok());
      tokens.push_back(f.CollectToken());
    }
    return tokens;
  };
  FakeRunnerOptions o = Small();
  o.mode = FakeRunnerOptions::Mode::kEcho;
  EXPECT_THAT(run(o, 0, 4), ElementsAre(11, 12, 99, 99));
  o.mode = FakeRunnerOptions::Mode::kScript;
  o.scripts = {{1, 2, 3}, {4}};
  EXPECT_THAT(run(o, 2, 4), ElementsAre(1, 2, 3, 99));
  EXPECT_THAT(run(o, 7, 3), ElementsAre(4, 99, 99));
}

TEST(FakeRunnerTest, MasksAllowedIdsAndMinTokens) {
  FakeRunnerOptions o = Small();
  o.mode = FakeRunnerOptions::Mode::kScript;
  o.scripts = {{5}};
  Feeder f(o);
  SamplingParams s;
  s.min_tokens = 1;
  s.eos_and_stop_ids = {5, 6};
  f.Init(1, {1}, {}, s);
  ASSERT_TRUE(f.Launch(1, 0, {1}, Blocks({1}), 0).ok());
  EXPECT_EQ(f.CollectToken(), 7);
  s = {};
  s.allowed_token_ids = {42};
  f.Init(2, {1}, {}, s);
  ASSERT_TRUE(f.Launch(2, 0, {1}, Blocks({2}), 0).ok());
  EXPECT_EQ(f.CollectToken(), 42);
}

TEST(FakeRunnerTest, StepsTakeTheirTimeOneAfterAnother) {
  FakeRunnerOptions o = Small();
  o.step_us = 100;
  o.token_us = 10;
  int64_t now = 0;
  o.now_ns = [&] { return now; };
  o.sleep_ns = [&](int64_t ns) { now += ns; };
  Feeder f(o);
  f.Init(1, {1, 2, 3, 4});
  ASSERT_TRUE(f.Launch(1, 0, {1, 2, 3, 4}, Blocks({1, 2}), 0).ok());
  ASSERT_TRUE(f.Launch(1, 4, {}, Blocks({1, 2}), 1).ok());
  f.CollectToken();
  EXPECT_EQ(now, 140'000);
  f.CollectToken();
  EXPECT_EQ(now, 250'000);
  ASSERT_EQ(f.runner->info().chunk_times.size(), 4u);  // 4, 8, 16, 32 tokens
  EXPECT_EQ(f.runner->info().chunk_times[1].micros, 180);
}

TEST(FakeRunnerTest, InjectsFailures) {
  FakeRunnerOptions o = Small();
  o.fail_at_step = 2;
  o.nonfinite_seed = 9;
  o.nonfinite_index = 1;
  o.hang_at_step = 1;
  Feeder f(o);
  SamplingParams s;
  s.seed = 9;
  f.Init(1, {1, 2}, {3}, s);
  ASSERT_TRUE(f.Launch(1, 0, {1, 2, 3}, Blocks({1}), 1).ok());
  std::thread release([&] { f.runner->ReleaseHang(); });
  const StepOutput* out = f.runner->Collect().value();
  release.join();
  EXPECT_TRUE(out->rows[0].nonfinite_logits);
  ASSERT_TRUE(f.Launch(1, 3, {}, Blocks({1}), 2).ok());
  EXPECT_EQ(f.runner->Collect().status().code(), absl::StatusCode::kInternal);
}

TEST(FakeRunnerTest, SlowStartWaits) {
  FakeRunnerOptions o = Small();
  int64_t slept = 0;
  o.sleep_ns = [&](int64_t ns) { slept += ns; };
  o.start_ms = 5000;
  ASSERT_TRUE(FakeRunner::Create(o).ok());
  EXPECT_EQ(slept, 5'000'000'000);
}

TEST(FakeOptionsTest, ReadsEveryName) {
  const auto o = ParseFakeRunnerOptions(
      "mode=echo,first-id=17,eos-id=2,vocab-size=300,max-model-len=4096,block-size=32,"
      "max-num-seqs=8,max-num-batched-tokens=512,num-blocks=99,window=0,window=128,step-us=5,"
      "token-us=6,start-ms=7,fail-at-step=8,hang-at-step=9,nonfinite-seed=10,nonfinite-index=11,"
      "verify=true");
  ASSERT_TRUE(o.ok()) << o.status();
  EXPECT_EQ(o->mode, FakeRunnerOptions::Mode::kEcho);
  EXPECT_EQ(o->first_id, 17);
  EXPECT_EQ(o->eos_id, 2);
  EXPECT_EQ(o->vocab_size, 300);
  EXPECT_EQ(o->max_model_len, 4096);
  EXPECT_EQ(o->block_size, 32);
  EXPECT_EQ(o->max_num_seqs, 8);
  EXPECT_EQ(o->max_num_batched_tokens, 512);
  EXPECT_EQ(o->num_blocks, 99);
  EXPECT_THAT(o->windows, ElementsAre(0, 128));
  EXPECT_EQ(o->step_us, 5);
  EXPECT_EQ(o->token_us, 6);
  EXPECT_EQ(o->start_ms, 7);
  EXPECT_EQ(o->fail_at_step, 8);
  EXPECT_EQ(o->hang_at_step, 9);
  EXPECT_EQ(o->nonfinite_seed, 10);
  EXPECT_EQ(o->nonfinite_index, 11);
  EXPECT_TRUE(o->verify);
  EXPECT_TRUE(ParseFakeRunnerOptions("").ok());
}

TEST(FakeOptionsTest, ReadsScriptsFromAFile) {
  const std::filesystem::path path =
      std::filesystem::path(::testing::TempDir()) / "fake_scripts.txt";
  std::ofstream(path) << "1 2 3\n\n40\n";
  const auto o = ParseFakeRunnerOptions("scripts=" + path.string());
  ASSERT_TRUE(o.ok()) << o.status();
  EXPECT_EQ(o->mode, FakeRunnerOptions::Mode::kScript);
  EXPECT_THAT(o->scripts, ElementsAre(ElementsAre(1, 2, 3), ElementsAre(), ElementsAre(40)));
  std::ofstream(path) << "1 x 3\n";
  EXPECT_THAT(std::string(ParseFakeRunnerOptions("scripts=" + path.string()).status().message()),
              HasSubstr("bad line '1 x 3'"));
}

TEST(FakeOptionsTest, ErrorsNameTheOption) {
  const auto message = [](const char* text) {
    return std::string(ParseFakeRunnerOptions(text).status().message());
  };
  EXPECT_THAT(message("step-us=abc"), HasSubstr("step-us: 'abc'"));
  EXPECT_THAT(message("step-us"), HasSubstr("'step-us'"));
  EXPECT_THAT(message("steps=3"), HasSubstr("'steps'"));
  EXPECT_THAT(message("mode=real"), HasSubstr("mode: 'real'"));
  EXPECT_THAT(message("block-size=5x"), HasSubstr("block-size: '5x'"));
  FakeRunnerOptions o = Small();
  o.mode = FakeRunnerOptions::Mode::kScript;
  EXPECT_FALSE(FakeRunner::Create(o).ok());
  o.scripts = {{100}};
  EXPECT_THAT(std::string(FakeRunner::Create(o).status().message()), HasSubstr("script id 100"));
}

}  // namespace
}  // namespace penstock
