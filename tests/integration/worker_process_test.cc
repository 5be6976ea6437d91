// Real worker processes with the fake backend, behind a pool in this process.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/base/exit_codes.h"
#include "router/pool/worker_pool.h"
#include "tests/integration/worker_child.h"
#include "tests/router/pool/pool_client.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

class WorkerProcessTest : public ::testing::Test {
 protected:
  WorkerProcessTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "workers.XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
  }
  ~WorkerProcessTest() override {
    pool_.reset();
    workers_.clear();
    std::filesystem::remove_all(directory_);
  }

  WorkerChild& Start(const std::string& name, const std::string& fake,
                     std::vector<std::string> more = {}) {
    std::vector<std::string> flags = {"--model", "synthetic", "--backend", "fake"};
    if (!fake.empty()) flags.insert(flags.end(), {"--fake", fake});
    flags.insert(flags.end(), more.begin(), more.end());
    workers_.push_back(std::make_unique<WorkerChild>(directory_, name, flags));
    return *workers_.back();
  }
  void MakePool(int ready, PoolOptions options = {}) {
    for (const auto& worker : workers_) options.addresses.push_back(worker->address());
    options.policy = BalancePolicy::kRoundRobin;
    pool_ = *CreateWorkerPool(std::move(options));
    ASSERT_TRUE(Eventually([&] { return ReadyWorkers(*pool_) == ready; }));
  }
  static GenerationRequest Request(int32_t max_tokens, uint64_t seed = 1) {
    return {.prompt_ids = {1, 2, 3}, .seed = seed, .max_tokens = max_tokens, .ignore_eos = true};
  }
  std::string Log(const std::string& name) const {
    std::ifstream file(directory_ + "/" + name + ".log");
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  // 12 streams over two workers; `harm` befalls the first one; all must end complete, and as they
  // would undisturbed.
  void ExpectStreamsSurvive(const std::function<void(WorkerChild&)>& harm) {
    WorkerChild& first = Start("a", "step-us=2000");
    Start("b", "step-us=2000");
    for (const auto& worker : workers_) ASSERT_TRUE(worker->WaitReady());
    MakePool(2, {.heartbeat_timeout = std::chrono::milliseconds(2'500),
                 .heartbeat_dead = std::chrono::milliseconds(4'000)});
    std::vector<std::unique_ptr<PoolCall>> calls;
    for (int i = 0; i < 12; ++i) {
      calls.push_back(std::make_unique<PoolCall>(*pool_, io_, Request(150, i)));
    }
    for (const auto& call : calls) ASSERT_TRUE(call->WaitForTokens(5));
    harm(first);
    for (int i = 0; i < 12; ++i) {
      ASSERT_EQ(calls[i]->WaitForFinish().reason, GenerationEnd::kLength) << i;
      PoolCall alone(*pool_, io_, Request(150, i));
      alone.WaitForFinish();
      EXPECT_EQ(calls[i]->ids(), alone.ids()) << i;
    }
    EXPECT_EQ(InFlight(*pool_), 0);
  }

  std::string directory_;
  std::vector<std::unique_ptr<WorkerChild>> workers_;
  IoThread io_;
  std::unique_ptr<WorkerPool> pool_;
};

TEST_F(WorkerProcessTest, ServesOnAPrivateSocketAndReports) {
  WorkerChild& worker = Start("w", "", {"--max-model-len", "2K", "--served-model-name", "tiny"});
  ASSERT_TRUE(worker.WaitReady());
  EXPECT_THAT(worker.notices(), HasSubstr("EXTEND_TIMEOUT_USEC="));
  struct stat info {};
  ASSERT_EQ(stat(worker.socket().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  MakePool(1);
  EXPECT_EQ(pool_->model()->name, "tiny");
  EXPECT_EQ(pool_->model()->max_model_len, 2048);
  PoolCall call(*pool_, io_, Request(40));
  EXPECT_EQ(call.WaitForFinish().reason, GenerationEnd::kLength);
  EXPECT_EQ(call.ids().size(), 40u);
  for (const char* part : {"model loaded", "full_length_requests=", "ready listen=", "seconds="}) {
    EXPECT_THAT(Log("w"), HasSubstr(part));
  }
}

TEST_F(WorkerProcessTest, CancelFreesTheWorker) {
  ASSERT_TRUE(Start("w", "step-us=1000").WaitReady());
  MakePool(1);
  PoolCall call(*pool_, io_, Request(8'000));
  ASSERT_TRUE(call.WaitForTokens(5));
  ASSERT_TRUE(Eventually([&] { return pool_->workers()[0].running == 1; }));
  call.Cancel();
  EXPECT_TRUE(Eventually([&] {
    const WorkerStatus status = pool_->workers()[0];
    return status.running == 0 && status.waiting == 0 &&
           status.free_blocks + status.cached_blocks == status.total_blocks;
  }));
}

TEST_F(WorkerProcessTest, OverloadIsRefusedAndThenGone) {
  ASSERT_TRUE(Start("w", "step-us=500", {"--max-num-seqs", "4"}).WaitReady());
  MakePool(1);
  std::vector<std::unique_ptr<PoolCall>> calls;
  for (int i = 0; i < 1'200; ++i) {
    calls.push_back(std::make_unique<PoolCall>(*pool_, io_, Request(4)));
  }
  int refused = 0;
  for (const auto& call : calls) {
    const GenerationFinish& finish = call->WaitForFinish();
    ASSERT_TRUE(finish.status.ok() || absl::IsResourceExhausted(finish.status)) << finish.status;
    refused += finish.status.ok() ? 0 : 1;
  }
  PoolCall after(*pool_, io_, Request(4));
  EXPECT_TRUE(after.WaitForFinish().status.ok());
  EXPECT_EQ(InFlight(*pool_), 0);
  RecordProperty("refused", refused);
}

TEST_F(WorkerProcessTest, StreamsSurviveKill9) {
  ExpectStreamsSurvive([](WorkerChild& worker) { worker.Signal(SIGKILL); });
}

TEST_F(WorkerProcessTest, StreamsSurviveAStoppedProcess) {
  ExpectStreamsSurvive([this](WorkerChild& worker) {
    worker.Signal(SIGSTOP);
    EXPECT_TRUE(Eventually(
        [&] { return pool_->workers()[0].reason.find("no heartbeat") != std::string::npos; }));
    EXPECT_EQ(ReadyWorkers(*pool_), 1);
  });
}

TEST_F(WorkerProcessTest, AStoppedProcessThatGoesOnIsTakenBack) {
  WorkerChild& worker = Start("w", "step-us=1000");
  ASSERT_TRUE(worker.WaitReady());
  MakePool(1, {.heartbeat_timeout = std::chrono::milliseconds(2'500)});
  worker.Signal(SIGSTOP);
  ASSERT_TRUE(Eventually([&] { return ReadyWorkers(*pool_) == 0; }));
  worker.Signal(SIGCONT);
  ASSERT_TRUE(Eventually([&] { return ReadyWorkers(*pool_) == 1; }));
  PoolCall call(*pool_, io_, Request(10));
  EXPECT_EQ(call.WaitForFinish().reason, GenerationEnd::kLength);
}

TEST_F(WorkerProcessTest, SigtermDrainsAndExitsZero) {
  WorkerChild& worker = Start("w", "step-us=2000");
  ASSERT_TRUE(worker.WaitReady());
  MakePool(1);
  PoolCall running(*pool_, io_, Request(600));
  ASSERT_TRUE(running.WaitForTokens(5));
  worker.Signal(SIGTERM);
  ASSERT_TRUE(Eventually([&] { return pool_->workers()[0].reason == "draining"; }));
  PoolCall late(*pool_, io_, Request(5));
  EXPECT_EQ(late.WaitForFinish().status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(running.WaitForFinish().reason, GenerationEnd::kLength);
  EXPECT_EQ(running.ids().size(), 600u);
  EXPECT_EQ(worker.WaitExit(), kExitOk) << Log("w");
}

TEST_F(WorkerProcessTest, TheDrainTimeoutEndsWhatIsLeft) {
  WorkerChild& worker = Start("w", "step-us=2000", {"--drain-timeout", "0.2"});
  ASSERT_TRUE(worker.WaitReady());
  MakePool(1);
  PoolCall running(*pool_, io_, Request(8'000));
  ASSERT_TRUE(running.WaitForTokens(5));
  worker.Signal(SIGTERM);
  EXPECT_EQ(running.WaitForFinish().status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(worker.WaitExit(), kExitOk) << Log("w");
}

TEST_F(WorkerProcessTest, ASecondSignalEndsItAtOnce) {
  WorkerChild& worker = Start("w", "step-us=2000", {"--drain-timeout", "60"});
  ASSERT_TRUE(worker.WaitReady());
  MakePool(1);
  PoolCall running(*pool_, io_, Request(8'000));
  ASSERT_TRUE(running.WaitForTokens(5));
  worker.Signal(SIGTERM);
  ASSERT_TRUE(Eventually([&] { return pool_->workers()[0].reason == "draining"; }));
  worker.Signal(SIGTERM);
  EXPECT_EQ(worker.WaitExit(), kExitFailure);
  EXPECT_EQ(running.WaitForFinish().status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(WorkerProcessTest, ARunnerFaultEndsTheProcessAndMovesTheStreams) {
  WorkerChild& first = Start("a", "step-us=2000,fail-at-step=40");
  ASSERT_TRUE(first.WaitReady());
  MakePool(1);
  PoolCall call(*pool_, io_, Request(100));
  EXPECT_EQ(call.WaitForFinish().status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(first.WaitExit(), kExitFailure);
  EXPECT_THAT(Log("a"), HasSubstr("runner failed"));
}

TEST_F(WorkerProcessTest, ExitCodesTellFlagsFromModelFromAddress) {
  EXPECT_EQ(Start("flag", "", {"--max-model-length", "5"}).WaitExit(), kExitUsage);
  EXPECT_THAT(Log("flag"), HasSubstr("did you mean --max-model-len?"));
  EXPECT_EQ(Start("value", "", {"--max-model-len", "many"}).WaitExit(), kExitUsage);
  EXPECT_THAT(Log("value"), HasSubstr("many"));
  std::ofstream(directory_ + "/broken.gguf") << "version https://git-lfs.github.com/spec/v1\n";
  EXPECT_EQ(Start("model", "", {"--model", directory_ + "/broken.gguf"}).WaitExit(), kExitModel)
      << Log("model");
  EXPECT_THAT(Log("model"), HasSubstr("broken.gguf"));
  WorkerChild& holder = Start("taken", "");
  ASSERT_TRUE(holder.WaitReady());
  EXPECT_EQ(Start("taken", "").WaitExit(), kExitBind);
  EXPECT_THAT(Log("taken"), HasSubstr("another process is listening there"));
}

}  // namespace
}  // namespace penstock
