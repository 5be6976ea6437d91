#include <grpcpp/channel.h>
#include <grpcpp/server.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "common/rpc/address.h"
#include "common/rpc/channel.h"
#include "common/rpc/rpc_status.h"
#include "penstock/v1/worker.grpc.pb.h"

namespace penstock {
namespace {

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "rpc_test.XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

class DrainingService : public v1::Worker::CallbackService {
 public:
  grpc::Status status;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const v1::DrainRequest*,
                                  v1::DrainResponse* response) override {
    response->set_running(3);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(status);
    return reactor;
  }
};

absl::Status CallDrain(const RpcAddress& address) {
  const auto stub = v1::Worker::NewStub(OpenChannel(address));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  v1::DrainResponse response;
  const absl::Status status = FromGrpcStatus(stub->Drain(&context, {}, &response));
  EXPECT_EQ(response.running(), status.ok() ? 3 : 0);
  return status;
}

TEST(RpcAddressTest, ParsesEveryForm) {
  EXPECT_EQ(ParseRpcAddress("127.0.0.1:80")->ToString(), "127.0.0.1:80");
  EXPECT_EQ(ParseRpcAddress("[::1]:0")->ToString(), "[::1]:0");
  EXPECT_EQ(ParseRpcAddress("unix:/run/w.sock")->unix_path, "/run/w.sock");
  EXPECT_EQ(ParseRpcAddress("unix:///run/w.sock")->ToString(), "unix:/run/w.sock");
}

TEST(RpcAddressTest, RefusesWithTheValue) {
  for (const std::string text : {"", "host", ":80", "host:", "host:65536", "host:8x", "::1:80",
                                 "unix:", "unix:relative", "host:-1"}) {
    const auto address = ParseRpcAddress(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_EQ(address.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(address.status().message().find(text), absl::string_view::npos);
  }
  EXPECT_FALSE(ParseRpcAddress("unix:/" + std::string(200, 'x')).ok());
}

TEST(RpcStatusTest, OursCrossesWhole) {
  const absl::Status status =
      WithField(absl::ResourceExhaustedError("queue is full"), "prompt_ids");
  const absl::Status back = FromGrpcStatus(ToGrpcStatus(status));
  EXPECT_EQ(back.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(back.message(), "queue is full");
  EXPECT_EQ(FieldOf(back), "prompt_ids");
  EXPECT_TRUE(FromGrpcStatus(ToGrpcStatus(absl::OkStatus())).ok());
}

TEST(RpcStatusTest, GrpcsOwnStatusesAreNeverTheClientsFault) {
  const auto map = [](grpc::StatusCode code) { return FromGrpcStatus({code, "m"}).code(); };
  EXPECT_EQ(map(grpc::StatusCode::RESOURCE_EXHAUSTED), absl::StatusCode::kInternal);
  EXPECT_EQ(map(grpc::StatusCode::INVALID_ARGUMENT), absl::StatusCode::kInternal);
  EXPECT_EQ(map(grpc::StatusCode::NOT_FOUND), absl::StatusCode::kInternal);
  EXPECT_EQ(map(grpc::StatusCode::UNIMPLEMENTED), absl::StatusCode::kUnavailable);
  EXPECT_EQ(map(grpc::StatusCode::UNAVAILABLE), absl::StatusCode::kUnavailable);
  EXPECT_EQ(StatusCodeFromWire(99), absl::StatusCode::kUnknown);
  EXPECT_EQ(StatusCodeFromWire(-1), absl::StatusCode::kUnknown);
  EXPECT_EQ(StatusCodeFromWire(8), absl::StatusCode::kResourceExhausted);
}

TEST(RpcServerTest, UnixSocketIsPrivateServesAndIsNotTakenOver) {
  const TempDir dir;
  const RpcAddress address{.unix_path = dir.File("w.sock")};
  DrainingService service;
  auto running = StartServer(address, {&service});
  ASSERT_TRUE(running.ok()) << running.status();
  struct stat info {};
  ASSERT_EQ(stat(address.unix_path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_TRUE(CallDrain(address).ok());

  DrainingService other;
  EXPECT_EQ(StartServer(address, {&other}).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(CallDrain(address).ok()) << "the first server must not be disturbed";
  running->server->Shutdown();
}

TEST(RpcServerTest, AFileInTheWayIsRefusedAndKept) {
  const TempDir dir;
  std::ofstream(dir.File("file")) << "precious";
  DrainingService service;
  const auto running = StartServer({.unix_path = dir.File("file")}, {&service});
  EXPECT_EQ(running.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(std::filesystem::file_size(dir.File("file")), 8u);
}

TEST(RpcServerTest, TcpPortIsReportedAndATakenOneRefused) {
  DrainingService service;
  auto running = StartServer({.host = "127.0.0.1", .port = 0}, {&service});
  ASSERT_TRUE(running.ok()) << running.status();
  ASSERT_GT(running->address.port, 0);
  DrainingService other;
  EXPECT_FALSE(StartServer(running->address, {&other}).ok());
  service.status = ToGrpcStatus(WithField(absl::InvalidArgumentError("no"), "deadline_ms"));
  const absl::Status status = CallDrain(running->address);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(FieldOf(status), "deadline_ms");
  running->server->Shutdown();
}

}  // namespace
}  // namespace penstock
