#include "router/pool/io_shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "common/base/status.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

class ManualExecutor final : public IoExecutor {
 public:
  void Post(std::function<void()> task) override { tasks_.push_back(std::move(task)); }
  void Run() {
    while (!tasks_.empty()) {
      const auto task = std::move(tasks_.front());
      tasks_.pop_front();
      task();
    }
  }

 private:
  std::deque<std::function<void()>> tasks_;
};

class FakePort final : public WorkerPort {
 public:
  struct Sent {
    GenerationRequest request;
    std::vector<int32_t> emitted;
    int64_t deadline_ms = 0;
  };

  explicit FakePort(uint64_t serial) : serial_(serial) {}
  uint64_t serial() const override { return serial_; }
  const std::shared_ptr<WorkerLoad>& load() const override { return load_; }
  bool Submit(uint64_t id, const GenerationRequest& request, std::span<const int32_t> emitted,
              int64_t deadline_ms) override {
    if (over) return false;
    sent[id] = {request, {emitted.begin(), emitted.end()}, deadline_ms};
    return true;
  }
  void Cancel(uint64_t id) override { cancelled.push_back(id); }
  int in_flight() const { return load_->in_flight; }

  std::map<uint64_t, Sent> sent;
  std::vector<uint64_t> cancelled;
  bool over = false;

 private:
  const uint64_t serial_;
  const std::shared_ptr<WorkerLoad> load_ = std::make_shared<WorkerLoad>();
};

// Writes down what it gets, one word per call.
class RecordingSink final : public GenerationSink {
 public:
  void OnAccepted() override { log.push_back("accepted"); }
  void OnStarted(const GenerationStart& start) override {
    log.push_back("started " + std::to_string(start.cached_tokens));
  }
  void OnLogprobs(GenerationLogprobs logprobs) override {
    log.push_back("logprobs " + std::to_string(logprobs.index));
  }
  void OnToken(int32_t token_id, int32_t index) override {
    log.push_back(std::to_string(index) + ":" + std::to_string(token_id));
    if (cancel_at == index) handle->Cancel();
  }
  void OnStepEnd() override { log.push_back("end"); }
  void OnFinish(GenerationFinish finish) override {
    log.push_back("finish");
    last = std::move(finish);
  }

  std::vector<std::string> log;
  GenerationFinish last;
  std::unique_ptr<GenerationHandle> handle;
  int cancel_at = -1;
};

class IoShardTest : public ::testing::Test {
 protected:
  IoShardTest() { SetReady({a_, b_}); }

  void SetReady(std::vector<std::shared_ptr<FakePort>> ports) {
    balancer_->SetReady({ports.begin(), ports.end()});
  }
  // Sends one request; round robin begins with a_.
  uint64_t Submit(RecordingSink& sink, GenerationRequest request = {.max_tokens = 10}) {
    sink.handle = shard_->Submit(std::move(request), sink);
    return a_->sent.empty() ? 0 : a_->sent.rbegin()->first;
  }
  void Deliver(const FakePort& port, ShardBatch batch) {
    batch.session = port.serial();
    shard_->Deliver(batch);
  }
  static GenerationFinish ErrorFinish(absl::Status status) {
    GenerationFinish finish;
    finish.reason = GenerationEnd::kError;
    finish.status = std::move(status);
    return finish;
  }

  ManualExecutor executor_;
  std::shared_ptr<Balancer> balancer_ = std::make_shared<Balancer>(BalancePolicy::kRoundRobin);
  std::shared_ptr<IoShard> shard_ = std::make_shared<IoShard>(5, executor_, balancer_);
  std::shared_ptr<FakePort> a_ = std::make_shared<FakePort>(1);
  std::shared_ptr<FakePort> b_ = std::make_shared<FakePort>(2);
};

TEST_F(IoShardTest, EventsArriveInOrderAndTheCountEndsWithTheRequest) {
  RecordingSink sink;
  const uint64_t id = Submit(sink);
  EXPECT_EQ(id >> 56, 5u) << "the top byte names the io thread";
  EXPECT_EQ(a_->in_flight(), 1);
  Deliver(*a_, {.accepted = {id}});
  Deliver(*a_, {.started = {{id, {.cached_tokens = 4}}},
                .logprobs = {{id, {.index = 0}}, {id, {.index = 1}}},
                .tokens = {{id, 70, 0}, {id, 71, 1}},
                .finished = {{id, {.reason = GenerationEnd::kEos, .stop_id = 71}}}});
  EXPECT_THAT(sink.log, ElementsAre("accepted", "started 4", "logprobs 0", "0:70", "logprobs 1",
                                    "1:71", "end", "finish"));
  EXPECT_EQ(sink.last.stop_id, 71);
  EXPECT_EQ(a_->in_flight(), 0);
  EXPECT_EQ(shard_->size(), 0u);
}

TEST_F(IoShardTest, CancelIsIdempotentFreesTheCountAndSilencesTheSink) {
  RecordingSink sink;
  const uint64_t id = Submit(sink);
  sink.handle->Cancel();
  sink.handle->Cancel();
  sink.handle.reset();
  EXPECT_THAT(a_->cancelled, ElementsAre(id));
  EXPECT_EQ(a_->in_flight(), 0);
  Deliver(*a_, {.accepted = {id}, .tokens = {{id, 1, 0}}, .finished = {{id, {}}}});
  EXPECT_THAT(sink.log, IsEmpty());
}

TEST_F(IoShardTest, ASinkMayCancelFromItsOwnCallback) {
  RecordingSink sink;
  sink.cancel_at = 1;
  const uint64_t id = Submit(sink);
  Deliver(*a_, {.accepted = {id}, .tokens = {{id, 1, 0}, {id, 2, 1}, {id, 3, 2}}});
  EXPECT_THAT(sink.log, ElementsAre("accepted", "0:1", "1:2"));
  EXPECT_THAT(a_->cancelled, ElementsAre(id));
}

TEST_F(IoShardTest, DroppingTheHandleCancels) {
  RecordingSink sink;
  const uint64_t id = Submit(sink);
  sink.handle.reset();
  EXPECT_THAT(a_->cancelled, ElementsAre(id));
}

TEST_F(IoShardTest, WithNoWorkerTheErrorComesSoonButNotAtOnce) {
  SetReady({});
  RecordingSink sink;
  Submit(sink);
  EXPECT_THAT(sink.log, IsEmpty());
  executor_.Run();
  EXPECT_THAT(sink.log, ElementsAre("finish"));
  EXPECT_EQ(sink.last.status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(IoShardTest, LostBeforeTheFirstTokenIsRetriedOnceOnAnotherWorker) {
  RecordingSink sink;
  const uint64_t id = Submit(sink);
  Deliver(*a_, {.accepted = {id}});
  shard_->SessionLost(a_->serial(), absl::UnavailableError("lost"));
  ASSERT_EQ(b_->sent.count(id), 1u);
  EXPECT_EQ(a_->in_flight(), 0);
  EXPECT_EQ(b_->in_flight(), 1);
  // A second accepted is no news to the sink; a late token of the first worker is dropped.
  Deliver(*b_, {.accepted = {id}});
  Deliver(*a_, {.tokens = {{id, 9, 0}}});
  shard_->SessionLost(b_->serial(), absl::UnavailableError("lost too"));
  EXPECT_THAT(sink.log, ElementsAre("accepted", "finish"));
  EXPECT_EQ(sink.last.status.message(), "lost too");
  EXPECT_EQ(b_->in_flight(), 0);
}

TEST_F(IoShardTest, ARunningStreamIsResumedWithItsTokensAndNoneRepeats) {
  RecordingSink sink;
  const uint64_t id = Submit(sink, {.prompt_ids = {1, 2}, .seed = 42, .max_tokens = 10});
  Deliver(*a_, {.accepted = {id}, .tokens = {{id, 70, 0}, {id, 71, 1}}});
  shard_->SessionLost(a_->serial(), absl::UnavailableError("lost"));
  ASSERT_EQ(b_->sent.count(id), 1u);
  EXPECT_THAT(b_->sent[id].emitted, ElementsAre(70, 71));
  EXPECT_EQ(b_->sent[id].request.seed, 42u);
  EXPECT_THAT(b_->sent[id].request.prompt_ids, ElementsAre(1, 2));
  Deliver(*b_, {.accepted = {id}, .tokens = {{id, 71, 1}, {id, 72, 2}}});
  EXPECT_THAT(sink.log, ElementsAre("accepted", "0:70", "1:71", "end", "2:72", "end"));
}

TEST_F(IoShardTest, AStreamThatWasCompleteButForItsFinishEndsWithLength) {
  RecordingSink sink;
  const uint64_t id = Submit(sink, {.prompt_ids = {1}, .max_tokens = 2});
  Deliver(*a_, {.accepted = {id}, .tokens = {{id, 70, 0}, {id, 71, 1}}});
  shard_->SessionLost(a_->serial(), absl::UnavailableError("lost"));
  EXPECT_EQ(sink.last.reason, GenerationEnd::kLength);
  EXPECT_EQ(sink.last.completion_tokens, 2);
  EXPECT_THAT(b_->sent, IsEmpty());
}

TEST_F(IoShardTest, ARequestThatKillsItsWorkersDoesNotKillThemAll) {
  auto c = std::make_shared<FakePort>(3);
  SetReady({a_, b_, c});
  RecordingSink sink;
  const uint64_t id = Submit(sink);
  std::vector<FakePort*> ports = {a_.get(), b_.get(), c.get()};
  int moves = 0;
  int32_t index = 0;
  for (; sink.last.status.ok() && moves < 20; ++moves) {
    FakePort* now = nullptr;
    for (FakePort* port : ports) {
      if (port->in_flight() == 1) now = port;
    }
    ASSERT_NE(now, nullptr);
    Deliver(*now, {.accepted = {id}, .tokens = {{id, 7, index}}});
    ++index;
    shard_->SessionLost(now->serial(), absl::UnavailableError("lost"));
  }
  EXPECT_EQ(moves, 4) << "the first worker and three more";
  EXPECT_EQ(sink.log.back(), "finish");
}

TEST_F(IoShardTest, AFullQueueIsTriedElsewhereAndABadRequestIsNot) {
  RecordingSink sink;
  const uint64_t id = Submit(sink);
  Deliver(*a_, {.finished = {{id, ErrorFinish(absl::ResourceExhaustedError("full"))}}});
  EXPECT_EQ(b_->sent.count(id), 1u);
  Deliver(*b_, {.finished = {{id, ErrorFinish(absl::ResourceExhaustedError("full as well"))}}});
  EXPECT_EQ(sink.last.status.message(), "full as well");

  RecordingSink bad;
  bad.handle = shard_->Submit({.max_tokens = 1}, bad);
  const uint64_t bad_id = id + 1;
  FakePort& port = a_->sent.count(bad_id) ? *a_ : *b_;
  Deliver(port, {.finished = {{bad_id, ErrorFinish(absl::InvalidArgumentError("no"))}}});
  EXPECT_EQ(bad.last.status.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(IoShardTest, ASkippedIndexEndsTheStreamWithAnError) {
  RecordingSink sink;
  const uint64_t id = Submit(sink);
  Deliver(*a_, {.accepted = {id}, .tokens = {{id, 70, 0}, {id, 72, 2}}});
  EXPECT_EQ(sink.last.status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(a_->cancelled, ElementsAre(id));
  EXPECT_EQ(sink.last.completion_tokens, 1);
}

TEST_F(IoShardTest, ASessionThatEndedUnseenIsPassedOver) {
  a_->over = true;
  RecordingSink sink;
  sink.handle = shard_->Submit({.max_tokens = 1}, sink);
  EXPECT_EQ(b_->sent.size(), 1u);
  EXPECT_EQ(a_->in_flight(), 0);
}

TEST_F(IoShardTest, TheDeadlineLeftTravelsWithAMove) {
  RecordingSink sink;
  const uint64_t id = Submit(sink, {.max_tokens = 5, .deadline_ms = 60'000});
  EXPECT_GT(a_->sent[id].deadline_ms, 50'000);
  shard_->SessionLost(a_->serial(), absl::UnavailableError("lost"));
  EXPECT_GT(b_->sent[id].deadline_ms, 50'000);
  EXPECT_LE(b_->sent[id].deadline_ms, a_->sent[id].deadline_ms);
}

TEST(BalancerTest, RoundRobinTakesTurns) {
  Balancer balancer(BalancePolicy::kRoundRobin);
  std::vector<std::shared_ptr<FakePort>> ports;
  for (uint64_t i = 1; i <= 3; ++i) ports.push_back(std::make_shared<FakePort>(i));
  balancer.SetReady({ports.begin(), ports.end()});
  std::map<uint64_t, int> picks;
  for (int i = 0; i < 30; ++i) ++picks[balancer.Pick()->serial()];
  EXPECT_THAT(picks, ElementsAre(Pair(1, 10), Pair(2, 10), Pair(3, 10)));
}

TEST(BalancerTest, PowerOfTwoNeverTakesTheFullestAndSpreadsEvenLoad) {
  Balancer balancer(BalancePolicy::kPowerOfTwo);
  std::vector<std::shared_ptr<FakePort>> ports;
  for (uint64_t i = 1; i <= 4; ++i) ports.push_back(std::make_shared<FakePort>(i));
  balancer.SetReady({ports.begin(), ports.end()});
  ports[2]->load()->in_flight = 100;
  std::map<uint64_t, int> picks;
  for (int i = 0; i < 3000; ++i) ++picks[balancer.Pick()->serial()];
  EXPECT_EQ(picks.count(3), 0u) << "of any two, the other one is emptier";
  for (const uint64_t serial : {1, 2, 4}) EXPECT_NEAR(picks[serial], 1000, 200);
}

TEST(BalancerTest, PowerOfTwoKeepsCountsLevelUnderLoad) {
  Balancer balancer(BalancePolicy::kPowerOfTwo);
  std::vector<std::shared_ptr<FakePort>> ports;
  for (uint64_t i = 1; i <= 8; ++i) ports.push_back(std::make_shared<FakePort>(i));
  balancer.SetReady({ports.begin(), ports.end()});
  std::vector<PortLease> leases;
  for (int i = 0; i < 800; ++i) leases.emplace_back(balancer.Pick());
  for (const auto& port : ports) EXPECT_NEAR(port->in_flight(), 100, 6);
  leases.clear();
  for (const auto& port : ports) EXPECT_EQ(port->in_flight(), 0);
}

TEST(BalancerTest, AnAvoidedWorkerIsNeverPicked) {
  for (const auto policy : {BalancePolicy::kRoundRobin, BalancePolicy::kPowerOfTwo}) {
    Balancer balancer(policy);
    const auto a = std::make_shared<FakePort>(1);
    const auto b = std::make_shared<FakePort>(2);
    balancer.SetReady({a, b});
    for (int i = 0; i < 20; ++i) EXPECT_EQ(balancer.Pick(a->load().get()), b);
    balancer.SetReady({a});
    EXPECT_EQ(balancer.Pick(a->load().get()), nullptr);
  }
}

}  // namespace
}  // namespace penstock
