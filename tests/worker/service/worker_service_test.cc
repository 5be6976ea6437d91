// The service over a real engine with the fake runner, called over a Unix socket.

#include "worker/service/worker_service.h"

#include <gmock/gmock.h>
#include <grpcpp/channel.h>
#include <grpcpp/server.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <thread>

#include "common/base/sha256.h"
#include "common/rpc/channel.h"
#include "common/rpc/rpc_status.h"
#include "penstock/v1/worker.grpc.pb.h"
#include "worker/model/fake_runner.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kPatience{60};

// One letter per id: 'a' + id % 26.
class LetterStream final : public TextStream {
 public:
  std::string Append(int32_t id) override { return {static_cast<char>('a' + id % 26)}; }
  std::string Flush() override { return ""; }
};
class LetterText final : public TextModel {
 public:
  absl::StatusOr<std::vector<int32_t>> EncodeText(std::string_view text) const override {
    std::vector<int32_t> ids;
    for (const char c : text) {
      if (c < 'a' || c > 'z') return absl::InvalidArgumentError("only small letters");
      ids.push_back(c - 'a');
    }
    return ids;
  }
  absl::StatusOr<std::vector<int32_t>> EncodeChat(const ChatPrompt& chat) const override {
    return EncodeText(chat.messages_json);
  }
  std::unique_ptr<TextStream> NewStream(bool) const override {
    return std::make_unique<LetterStream>();
  }
  SamplingDefaults defaults() const override { return {.temperature = 0.0f}; }
};

class WorkerServiceTest : public ::testing::Test {
 protected:
  void Start(FakeRunnerOptions fake = {.mode = FakeRunnerOptions::Mode::kEcho, .eos_id = 999},
             int32_t max_queued = 64) {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "worker_service.XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
    EngineOptions options;
    options.model_fingerprint = "print";
    options.max_queued_requests = max_queued;
    auto runner = *FakeRunner::Create(std::move(fake));
    runner_ = runner.get();
    engine_ = *Engine::Create(options, std::move(runner));
    WorkerIdentity identity{.name = "test", .fingerprint = "print", .eos_token_ids = {999}};
    big_.assign((5 << 19) + 3, 'x');  // two and a half pieces
    for (const auto& [name, data] : {std::pair("big", big_), std::pair("empty", std::string())}) {
      identity.assets.push_back({name, HexEncode(Sha256(data)), data});
    }
    service_ = std::make_unique<WorkerService>(
        WorkerServiceOptions{.identity = identity,
                             .text = std::make_shared<LetterText>(),
                             .on_drain = [this](int64_t ms) { drain_ms_.set_value(ms); }},
        *engine_);
    server_ = *StartServer({.unix_path = directory_ + "/w.sock"}, {service_->grpc_service()});
    stub_ = v1::Worker::NewStub(OpenChannel(server_.address));
  }
  ~WorkerServiceTest() override {
    if (server_.server != nullptr) server_.server->Shutdown(std::chrono::system_clock::now());
    server_ = RunningServer();
    service_.reset();
    engine_.reset();
    std::filesystem::remove_all(directory_);
  }

  static void SetDeadline(grpc::ClientContext* context) {
    context->set_deadline(std::chrono::system_clock::now() + kPatience);
  }

  struct Output {
    std::vector<int32_t> prompt, ids;
    std::string text;
    v1::GenerateResponse last;
    absl::Status status;
  };
  Output Generate(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    SetDeadline(&context);
    const auto reader = stub_->Generate(&context, request);
    Output output;
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
      output.prompt.insert(output.prompt.end(), response.prompt_token_ids().begin(),
                           response.prompt_token_ids().end());
      output.ids.insert(output.ids.end(), response.token_ids().begin(), response.token_ids().end());
      output.text += response.text();
      output.last = response;
    }
    output.status = FromGrpcStatus(reader->Finish());
    return output;
  }
  static v1::GenerateRequest TextRequest(const std::string& text, int32_t max_tokens) {
    v1::GenerateRequest request;
    request.set_text(text);
    request.set_return_text(true);
    request.mutable_params()->set_max_tokens(max_tokens);
    return request;
  }
  void WaitUntilIdle() { ASSERT_TRUE(engine_->WaitIdle(kPatience)); }

  std::string directory_, big_;
  FakeRunner* runner_ = nullptr;  // the engine's
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<WorkerService> service_;
  RunningServer server_;
  std::unique_ptr<v1::Worker::Stub> stub_;
  std::promise<int64_t> drain_ms_;
};

// A session's client side: reads until a predicate holds.
class SessionClient {
 public:
  explicit SessionClient(v1::Worker::Stub& stub) {
    context_.set_deadline(std::chrono::system_clock::now() + kPatience);
    stream_ = stub.Session(&context_);
  }
  void Submit(uint64_t id, std::vector<int32_t> prompt, int32_t max_tokens) {
    v1::SessionUp up;
    v1::Submit* submit = up.mutable_submit();
    submit->set_request_id(id);
    submit->mutable_prompt_ids()->Add(prompt.begin(), prompt.end());
    submit->mutable_params()->set_max_tokens(max_tokens);
    submit->mutable_params()->mutable_sampling()->set_top_p(1);
    submit->mutable_params()->mutable_sampling()->set_repetition_penalty(1);
    EXPECT_TRUE(stream_->Write(up));
  }
  void Cancel(uint64_t id) {
    v1::SessionUp up;
    up.mutable_cancel()->set_request_id(id);
    EXPECT_TRUE(stream_->Write(up));
  }
  void Ping(uint64_t nonce) {
    v1::SessionUp up;
    up.mutable_ping()->set_nonce(nonce);
    EXPECT_TRUE(stream_->Write(up));
  }
  // False when the stream ended first.
  template <typename Predicate>
  bool ReadUntil(Predicate done) {
    while (!done()) {
      v1::SessionDown down;
      if (!stream_->Read(&down)) return false;
      if (down.has_hello()) hello = down.hello();
      if (down.has_heartbeat()) heartbeats.push_back(down.heartbeat());
      if (down.has_pong()) pong = down.pong().nonce();
      for (const auto& a : down.accepted()) accepted.push_back(a.request_id());
      for (int i = 0; i < down.step().request_id_size(); ++i) {
        tokens[down.step().request_id(i)].push_back(down.step().token_id(i));
      }
      for (const auto& finish : down.finished()) finished[finish.request_id()] = finish;
    }
    return true;
  }
  grpc::Status End() {
    stream_->WritesDone();
    v1::SessionDown down;
    while (stream_->Read(&down)) {
    }
    return stream_->Finish();
  }
  void Break() {
    context_.TryCancel();
    (void)End();
  }

  v1::Hello hello;
  std::vector<v1::Load> heartbeats;
  uint64_t pong = 0;
  std::vector<uint64_t> accepted;
  std::map<uint64_t, std::vector<int32_t>> tokens;
  std::map<uint64_t, v1::Finish> finished;

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::SessionUp, v1::SessionDown>> stream_;
};

TEST_F(WorkerServiceTest, SessionRunsManyRequestsAndSaysHelloFirst) {
  Start();
  SessionClient session(*stub_);
  for (uint64_t id = 1; id <= 50; ++id) {
    session.Submit(id, {static_cast<int32_t>(id), static_cast<int32_t>(id + 1)}, 8);
  }
  ASSERT_TRUE(session.ReadUntil([&] { return session.finished.size() == 50; }));
  EXPECT_EQ(session.hello.model_fingerprint(), "print");
  EXPECT_EQ(session.hello.protocol_version(), 1);
  EXPECT_EQ(session.accepted.size(), 50u);
  for (uint64_t id = 1; id <= 50; ++id) {
    EXPECT_THAT(session.tokens[id], ElementsAre(id, id + 1, 999));
    EXPECT_EQ(session.finished[id].reason(), v1::FINISH_REASON_EOS);
    EXPECT_EQ(session.finished[id].stop_id(), 999);
  }
  EXPECT_TRUE(session.End().ok());
}

TEST_F(WorkerServiceTest, RefusalsAreFinishesWithTheFieldAndPingsAreAnswered) {
  Start();
  SessionClient session(*stub_);
  session.Submit(1, {5'000}, 8);
  session.Ping(77);
  ASSERT_TRUE(session.ReadUntil([&] { return session.finished.size() == 1 && session.pong; }));
  EXPECT_EQ(session.finished[1].status_code(), 3);
  EXPECT_EQ(session.finished[1].status_field(), "prompt_ids");
  EXPECT_EQ(session.pong, 77u);
  EXPECT_TRUE(session.accepted.empty());
}

TEST_F(WorkerServiceTest, HeartbeatsComeWithoutTraffic) {
  Start();
  SessionClient session(*stub_);
  ASSERT_TRUE(session.ReadUntil([&] { return session.heartbeats.size() >= 3; }));
  EXPECT_GT(session.heartbeats[0].total_blocks(), 0);
}

TEST_F(WorkerServiceTest, AHungEngineShowsAsAnOldStamp) {
  Start({.hang_at_step = 1});
  SessionClient session(*stub_);
  session.Submit(1, {1}, 8);
  ASSERT_TRUE(session.ReadUntil([&] {
    return !session.heartbeats.empty() && session.heartbeats.back().engine_age_ms() > 1'500;
  }));
  runner_->ReleaseHang();
}

TEST_F(WorkerServiceTest, CancelEndsTheRequestAndIsIdempotent) {
  Start({.step_us = 1'000});
  SessionClient session(*stub_);
  session.Submit(1, {1, 2, 3}, 5'000);
  ASSERT_TRUE(session.ReadUntil([&] { return !session.tokens[1].empty(); }));
  session.Cancel(1);
  session.Cancel(1);
  session.Cancel(12345);
  ASSERT_TRUE(session.ReadUntil([&] { return session.finished.size() == 1; }));
  EXPECT_EQ(session.finished[1].reason(), v1::FINISH_REASON_CANCELLED);
  WaitUntilIdle();
}

TEST_F(WorkerServiceTest, TheSessionsEndCancelsEverythingOfIt) {
  Start({.step_us = 1'000});
  for (const bool broken : {false, true}) {
    SessionClient session(*stub_);
    for (uint64_t id = 1; id <= 20; ++id) session.Submit(id, {1, 2}, 8'000);
    ASSERT_TRUE(session.ReadUntil([&] { return session.accepted.size() == 20; }));
    if (broken) {
      session.Break();
    } else {
      EXPECT_TRUE(session.End().ok());
    }
    WaitUntilIdle();
  }
}

TEST_F(WorkerServiceTest, AFullQueueIsRefusedWithOurOwnStatus) {
  Start({.max_num_seqs = 1, .step_us = 2'000}, /*max_queued=*/2);
  SessionClient session(*stub_);
  for (uint64_t id = 1; id <= 30; ++id) session.Submit(id, {1}, 8'000);
  ASSERT_TRUE(session.ReadUntil([&] { return session.finished.size() >= 20; }));
  for (const auto& [id, finish] : session.finished) {
    EXPECT_EQ(finish.status_code(), static_cast<int>(absl::StatusCode::kResourceExhausted));
  }
}

TEST_F(WorkerServiceTest, GenerateTextInTextOut) {
  Start();
  const Output output = Generate(TextRequest("hello", 20));
  ASSERT_TRUE(output.status.ok()) << output.status;
  EXPECT_THAT(output.prompt, ElementsAre(7, 4, 11, 11, 14));
  EXPECT_EQ(output.text, std::string("hello") + static_cast<char>('a' + 999 % 26));
  EXPECT_EQ(output.last.finish_reason(), "stop");
  EXPECT_EQ(output.last.finish().completion_tokens(), 6);
}

TEST_F(WorkerServiceTest, GenerateStopsAtAStopString) {
  Start();
  v1::GenerateRequest request = TextRequest("abcdefgh", 20);
  request.add_stop("zz");
  request.add_stop("de");
  Output output = Generate(request);
  EXPECT_EQ(output.text, "abc");
  EXPECT_EQ(output.last.stop_string(), "de");
  EXPECT_EQ(output.last.finish().completion_tokens(), 5);
  EXPECT_THAT(output.ids, ElementsAre(0, 1, 2, 3, 4));
  request.set_include_stop_str_in_output(true);
  EXPECT_EQ(Generate(request).text, "abcde");
  WaitUntilIdle();
}

TEST_F(WorkerServiceTest, GenerateRefusesWithFieldAndCode) {
  Start();
  const auto field = [this](const v1::GenerateRequest& request) {
    const Output output = Generate(request);
    EXPECT_EQ(output.status.code(), absl::StatusCode::kInvalidArgument) << output.status;
    return FieldOf(output.status);
  };
  v1::GenerateRequest request = TextRequest("a", 20);
  request.set_temperature(-1);
  EXPECT_EQ(field(request), "temperature");
  request = TextRequest("NOT SMALL", 20);
  EXPECT_EQ(field(request), "text");
  request = TextRequest("a", 20);
  request.add_stop("");
  EXPECT_EQ(field(request), "stop");
  request.clear_prompt();
  request.clear_stop();
  EXPECT_EQ(field(request), "prompt");
}

TEST_F(WorkerServiceTest, GenerateWithoutMaxTokensUsesTheRestOfTheContext) {
  Start({.max_model_len = 64});
  v1::GenerateRequest request;
  for (int i = 0; i < 10; ++i) request.mutable_token_ids()->add_ids(i);
  request.mutable_params()->set_ignore_eos(true);
  const Output output = Generate(request);
  EXPECT_EQ(output.ids.size(), 54u);
  EXPECT_EQ(output.last.finish_reason(), "length");
}

TEST_F(WorkerServiceTest, EndingAGenerateCallCancels) {
  Start({.step_us = 1'000});
  grpc::ClientContext context;
  v1::GenerateRequest request = TextRequest("abc", 8'000);
  const auto reader = stub_->Generate(&context, request);
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  context.TryCancel();
  WaitUntilIdle();
}

TEST_F(WorkerServiceTest, TheCallsDeadlineIsTheRequests) {
  Start({.step_us = 20'000});
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(300));
  v1::GenerateRequest request = TextRequest("abc", 8'000);
  const auto reader = stub_->Generate(&context, request);
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  WaitUntilIdle();
}

TEST_F(WorkerServiceTest, GetModelSendsPiecesOfAtMostOneMegabyte) {
  Start();
  for (const bool have : {false, true}) {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::GetModelRequest request;
    if (have) request.add_have_sha256(HexEncode(Sha256(big_)));
    const auto reader = stub_->GetModel(&context, request);
    v1::GetModelResponse response;
    std::map<std::string, std::string> files;
    std::map<std::string, int> pieces;
    ASSERT_TRUE(reader->Read(&response));
    EXPECT_EQ(response.info().name(), "test");
    EXPECT_THAT(response.info().eos_token_ids(), ElementsAre(999));
    while (reader->Read(&response)) {
      const v1::AssetPiece& piece = response.asset();
      EXPECT_LE(piece.data().size(), size_t{1} << 20);
      EXPECT_EQ(piece.offset(), static_cast<int64_t>(files[piece.name()].size()));
      files[piece.name()] += piece.data();
      ++pieces[piece.name()];
    }
    EXPECT_TRUE(reader->Finish().ok());
    EXPECT_EQ(files.size(), 2u);
    EXPECT_EQ(files["big"], have ? "" : big_);
    EXPECT_EQ(pieces["big"], have ? 1 : 3);
    EXPECT_EQ(pieces["empty"], 1);
  }
}

TEST_F(WorkerServiceTest, WatchLoadAndDrain) {
  Start();
  grpc::ClientContext watch_context;
  SetDeadline(&watch_context);
  const auto watch = stub_->WatchLoad(&watch_context, {});
  v1::Load load;
  ASSERT_TRUE(watch->Read(&load));
  EXPECT_FALSE(load.draining());
  service_->SetDraining();
  while (!load.draining()) ASSERT_TRUE(watch->Read(&load));

  grpc::ClientContext drain_context;
  v1::DrainRequest request;
  request.set_deadline_ms(1'234);
  v1::DrainResponse response;
  ASSERT_TRUE(stub_->Drain(&drain_context, request, &response).ok());
  EXPECT_EQ(drain_ms_.get_future().get(), 1'234);
  service_->FinishStreams();
  while (watch->Read(&load)) {
  }
  EXPECT_TRUE(watch->Finish().ok());
}

TEST_F(WorkerServiceTest, DrainingRefusesNewWorkFinishesOldAndEndsSessions) {
  Start({.step_us = 1'000});
  SessionClient session(*stub_);
  session.Submit(1, {1}, 100);
  ASSERT_TRUE(session.ReadUntil([&] { return session.accepted.size() == 1; }));
  service_->SetDraining();
  engine_->StartDrain();
  session.Submit(2, {1}, 100);
  ASSERT_TRUE(session.ReadUntil([&] { return session.finished.size() == 2; }));
  EXPECT_EQ(session.finished[2].status_code(), static_cast<int>(absl::StatusCode::kUnavailable));
  EXPECT_EQ(session.tokens[1].size(), 100u);
  WaitUntilIdle();
  service_->FinishStreams();
  EXPECT_FALSE(session.ReadUntil([] { return false; }));
}

TEST_F(WorkerServiceTest, ManySessionsAndCallsAtOnce) {
  Start({.mode = FakeRunnerOptions::Mode::kEcho, .eos_id = 999});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int round = 0; round < 5; ++round) {
        if (t % 2 == 0) {
          EXPECT_EQ(Generate(TextRequest("abc", 3)).text, "abc");
          continue;
        }
        SessionClient session(*stub_);
        for (uint64_t id = 1; id <= 20; ++id) session.Submit(id, {3, 4, 5}, 3);
        EXPECT_TRUE(session.ReadUntil([&] { return session.finished.size() == 20; }));
        session.Break();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  WaitUntilIdle();
}

}  // namespace
}  // namespace penstock
