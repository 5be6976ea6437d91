// The pool against worker services in this process, over Unix sockets.

#include <gmock/gmock.h>
#include <grpcpp/server.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>

#include "common/base/sha256.h"
#include "common/rpc/channel.h"
#include "router/pool/worker_pool.h"
#include "tests/router/pool/pool_client.h"
#include "worker/model/fake_runner.h"
#include "worker/service/worker_service.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct WorkerSetup {
  FakeRunnerOptions fake = {.step_us = 1'000};
  std::string fingerprint = "print";
  int32_t max_queued = 1024;
};

class LocalWorker {
 public:
  LocalWorker(const std::string& socket, WorkerSetup setup = {}) {
    EngineOptions options;
    options.model_fingerprint = setup.fingerprint;
    options.max_queued_requests = setup.max_queued;
    auto runner = *FakeRunner::Create(std::move(setup.fake));
    runner_ = runner.get();
    engine_ = *Engine::Create(options, std::move(runner));
    WorkerIdentity identity{.name = "model", .fingerprint = setup.fingerprint, .format = "fake"};
    identity.eos_token_ids = {7};
    const std::string data((3 << 19) + 1, 'x');
    identity.assets.push_back({"tokenizer.json", HexEncode(Sha256(data)), data});
    service_ = std::make_unique<WorkerService>(
        WorkerServiceOptions{.identity = std::move(identity)}, *engine_);
    auto server = StartServer({.unix_path = socket}, {service_->grpc_service()});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  // Sessions break, as when the process dies.
  ~LocalWorker() {
    runner_->ReleaseHang();
    server_.server->Shutdown(std::chrono::system_clock::now());
  }
  Engine& engine() { return *engine_; }
  WorkerService& service() { return *service_; }

 private:
  FakeRunner* runner_ = nullptr;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<WorkerService> service_;
  RunningServer server_;
};

class PoolTest : public ::testing::Test {
 protected:
  PoolTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "pool_test.XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
  }
  ~PoolTest() override {
    pool_.reset();
    std::filesystem::remove_all(directory_);
  }
  std::string Socket(int i) const { return directory_ + "/" + std::to_string(i) + ".sock"; }
  void MakePool(int workers, PoolOptions options = {}) {
    for (int i = 0; i < workers; ++i) options.addresses.push_back("unix:" + Socket(i));
    options.policy = BalancePolicy::kRoundRobin;
    pool_ = *CreateWorkerPool(std::move(options));
  }
  void WaitReady(int workers) {
    ASSERT_TRUE(Eventually([&] { return ReadyWorkers(*pool_) == workers; }));
  }
  static GenerationRequest Request(int32_t max_tokens, uint64_t seed = 1) {
    return {.prompt_ids = {1, 2, 3}, .seed = seed, .max_tokens = max_tokens, .ignore_eos = true};
  }
  // What one undisturbed worker says.
  std::vector<int32_t> Alone(const GenerationRequest& request) {
    PoolCall call(*pool_, io_, request);
    EXPECT_EQ(call.WaitForFinish().reason, GenerationEnd::kLength);
    return call.ids();
  }

  std::string directory_;
  IoThread io_;
  std::array<IoThread, 3> more_io_;
  std::unique_ptr<WorkerPool> pool_;
};

TEST_F(PoolTest, LearnsTheModelAndStreams) {
  const LocalWorker worker(Socket(0));
  MakePool(1);
  WaitReady(1);
  const auto model = pool_->model();
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->name, "model");
  EXPECT_THAT(model->eos_token_ids, ElementsAre(7));
  ASSERT_EQ(model->assets.size(), 1u);
  EXPECT_EQ(model->assets[0].data, std::string((3 << 19) + 1, 'x'));
  GenerationRequest request = Request(30);
  request.top_logprobs = 2;
  PoolCall call(*pool_, io_, request);
  EXPECT_EQ(call.WaitForFinish().reason, GenerationEnd::kLength);
  EXPECT_EQ(call.ids().size(), 30u);
  EXPECT_EQ(call.WaitForFinish().completion_tokens, 30);
  EXPECT_EQ(InFlight(*pool_), 0);
  ASSERT_TRUE(Eventually([&] { return pool_->workers()[0].generation_tokens >= 30; }));
}

// A router that ends an answer itself has nothing but this to report.
TEST_F(PoolTest, TheFirstTokenComesWithWhatWasCached) {
  const LocalWorker worker(Socket(0));
  MakePool(1);
  WaitReady(1);
  GenerationRequest request = Request(3);
  request.prompt_ids.assign(200, 9);
  for (const bool again : {false, true}) {
    PoolCall call(*pool_, io_, request);
    const GenerationFinish& finish = call.WaitForFinish();
    ASSERT_EQ(call.starts().size(), 1u);
    EXPECT_EQ(call.starts()[0].cached_tokens, finish.cached_tokens);
    EXPECT_EQ(call.starts()[0].queue_seconds, finish.queue_seconds);
    EXPECT_EQ(call.starts()[0].prefill_seconds, finish.prefill_seconds);
    EXPECT_EQ(finish.cached_tokens > 0, again);
  }
}

TEST_F(PoolTest, SeveralIoThreadsShareOneSession) {
  const LocalWorker worker(Socket(0), {.fake = {}});
  MakePool(1);
  WaitReady(1);
  std::vector<std::unique_ptr<PoolCall>> calls;
  for (int i = 0; i < 60; ++i) {
    calls.push_back(std::make_unique<PoolCall>(*pool_, more_io_[i % 3], Request(20, i % 5)));
  }
  for (const auto& call : calls) EXPECT_EQ(call->WaitForFinish().reason, GenerationEnd::kLength);
  for (int i = 5; i < 60; ++i) EXPECT_EQ(calls[i]->ids(), calls[i % 5]->ids());
  EXPECT_EQ(InFlight(*pool_), 0);
}

TEST_F(PoolTest, RefusalsComeBackWithFieldAndWithoutAccepted) {
  const LocalWorker worker(Socket(0));
  MakePool(1);
  WaitReady(1);
  GenerationRequest request = Request(10);
  request.prompt_ids = {1'000'000};
  PoolCall call(*pool_, io_, request);
  const GenerationFinish& finish = call.WaitForFinish();
  EXPECT_EQ(finish.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(finish.field, "prompt_ids");
  EXPECT_FALSE(call.accepted());
}

TEST_F(PoolTest, CancelReachesTheEngine) {
  LocalWorker worker(Socket(0));
  MakePool(1);
  WaitReady(1);
  {
    PoolCall cancelled(*pool_, io_, Request(8'000));
    PoolCall dropped(*pool_, io_, Request(8'000));
    ASSERT_TRUE(cancelled.WaitForTokens(3));
    cancelled.Cancel();
  }
  EXPECT_TRUE(worker.engine().WaitIdle(kPatience));
  EXPECT_EQ(InFlight(*pool_), 0);
}

TEST_F(PoolTest, AStreamSurvivesItsWorkerWithoutAGap) {
  auto first = std::make_unique<LocalWorker>(Socket(0));
  const LocalWorker second(Socket(1));
  MakePool(2);
  WaitReady(2);
  std::vector<std::unique_ptr<PoolCall>> calls;
  for (int i = 0; i < 20; ++i) {
    calls.push_back(std::make_unique<PoolCall>(*pool_, io_, Request(200, i)));
  }
  for (const auto& call : calls) ASSERT_TRUE(call->WaitForTokens(5));
  first.reset();
  for (const auto& call : calls) EXPECT_EQ(call->WaitForFinish().reason, GenerationEnd::kLength);
  EXPECT_EQ(InFlight(*pool_), 0);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(calls[i]->ids(), Alone(Request(200, i))) << i;
}

TEST_F(PoolTest, WithoutAnotherWorkerTheErrorIsClear) {
  auto worker = std::make_unique<LocalWorker>(Socket(0));
  MakePool(1);
  WaitReady(1);
  PoolCall call(*pool_, io_, Request(8'000));
  ASSERT_TRUE(call.WaitForTokens(1));
  worker.reset();
  const GenerationFinish& finish = call.WaitForFinish();
  EXPECT_EQ(finish.reason, GenerationEnd::kError);
  EXPECT_EQ(finish.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(finish.completion_tokens, static_cast<int32_t>(call.ids().size()));
  PoolCall late(*pool_, io_, Request(10));
  EXPECT_EQ(late.WaitForFinish().status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(PoolTest, ADeadWorkerIsTakenBack) {
  auto worker = std::make_unique<LocalWorker>(Socket(0));
  MakePool(1);
  WaitReady(1);
  worker.reset();
  WaitReady(0);
  EXPECT_FALSE(pool_->ready());
  EXPECT_FALSE(pool_->workers()[0].reason.empty());
  worker = std::make_unique<LocalWorker>(Socket(0));
  WaitReady(1);
  EXPECT_EQ(Alone(Request(10)).size(), 10u);
  EXPECT_EQ(pool_->workers()[0].connects, 2u);
  EXPECT_EQ(pool_->workers()[0].breaks, 1u);
}

TEST_F(PoolTest, AnotherModelIsRefusedWithTheReason) {
  const LocalWorker first(Socket(0));
  MakePool(2);
  WaitReady(1);
  const LocalWorker other(Socket(1), {.fingerprint = "another"});
  ASSERT_TRUE(Eventually([&] {
    return pool_->workers()[1].reason.find("another") != std::string::npos;
  })) << pool_->workers()[1].reason;
  EXPECT_EQ(ReadyWorkers(*pool_), 1);
}

TEST_F(PoolTest, AHungEngineIsLeftOutThenGivenUpAndItsStreamsMove) {
  const LocalWorker hung(Socket(0), {.fake = {.step_us = 1'000, .hang_at_step = 20}});
  MakePool(2, {.engine_stall = std::chrono::milliseconds(1'200),
               .engine_dead = std::chrono::milliseconds(4'000)});
  WaitReady(1);
  PoolCall call(*pool_, io_, Request(100));
  ASSERT_TRUE(call.WaitForTokens(5));
  const LocalWorker healthy(Socket(1));
  ASSERT_TRUE(Eventually([&] {
    return pool_->workers()[0].reason.find("engine has not turned") != std::string::npos;
  }));
  EXPECT_EQ(call.WaitForFinish().reason, GenerationEnd::kLength);
  EXPECT_EQ(call.ids().size(), 100u);
}

TEST_F(PoolTest, ADrainingWorkerGetsNothingNewAndFinishesItsOwn) {
  LocalWorker worker(Socket(0));
  MakePool(2);
  WaitReady(1);
  PoolCall running(*pool_, io_, Request(1'500));
  ASSERT_TRUE(running.WaitForTokens(1));
  const LocalWorker other(Socket(1));
  WaitReady(2);
  worker.engine().StartDrain();
  // Refused there before the heartbeat tells: retried on the other one, unseen.
  PoolCall moved(*pool_, io_, Request(5));
  PoolCall moved_too(*pool_, io_, Request(5));
  EXPECT_EQ(moved.WaitForFinish().reason, GenerationEnd::kLength);
  EXPECT_EQ(moved_too.WaitForFinish().reason, GenerationEnd::kLength);
  worker.service().SetDraining();
  ASSERT_TRUE(Eventually([&] { return pool_->workers()[0].reason == "draining"; }));
  EXPECT_EQ(running.WaitForFinish().reason, GenerationEnd::kLength);
  EXPECT_EQ(running.ids().size(), 1'500u);
}

TEST_F(PoolTest, AnOverloadedWorkersRefusalIsOurs) {
  const LocalWorker worker(Socket(0),
                           {.fake = {.max_num_seqs = 1, .step_us = 1'000}, .max_queued = 2});
  MakePool(1);
  WaitReady(1);
  std::vector<std::unique_ptr<PoolCall>> calls;
  for (int i = 0; i < 20; ++i) {
    calls.push_back(std::make_unique<PoolCall>(*pool_, io_, Request(400)));
  }
  int refused = 0;
  for (const auto& call : calls) {
    const GenerationFinish& finish = call->WaitForFinish();
    refused += absl::IsResourceExhausted(finish.status) ? 1 : 0;
    EXPECT_TRUE(finish.status.ok() || absl::IsResourceExhausted(finish.status)) << finish.status;
  }
  EXPECT_GE(refused, 15);
}

TEST_F(PoolTest, NobodyThereIsReportedAndThePoolEndsQuickly) {
  MakePool(2);
  ASSERT_TRUE(Eventually([&] { return pool_->workers()[1].reason != "not connected yet"; }));
  EXPECT_EQ(pool_->model(), nullptr);
  PoolCall call(*pool_, io_, Request(10));
  EXPECT_EQ(call.WaitForFinish().status.code(), absl::StatusCode::kUnavailable);
  const auto start = std::chrono::steady_clock::now();
  pool_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(PoolOptionsTest, BadAddressesAreNamed) {
  for (const std::string bad : {"nonsense", "unix:relative"}) {
    const auto pool = CreateWorkerPool({.addresses = {bad}});
    EXPECT_EQ(pool.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(pool.status().message()), HasSubstr(bad));
  }
  EXPECT_FALSE(CreateWorkerPool({.addresses = {"h:1", "h:1"}}).ok());
}

}  // namespace
}  // namespace penstock
