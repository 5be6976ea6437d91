// The server on a real loopback socket: what parser tests cannot see.

#include "router/http/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <mutex>
#include <thread>

#include "gtest/gtest.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

class Client {
 public:
  explicit Client(int port, int receive_buffer = 0) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0) {
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    }
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~Client() { Close(); }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  void HalfClose() { shutdown(fd_, SHUT_WR); }
  void Send(std::string_view text) {
    EXPECT_EQ(send(fd_, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  // Until the text contains the mark, the server closes, or five seconds are over.
  std::string ReadUntil(const std::string& mark) {
    while (received_.find(mark) == std::string::npos) {
      pollfd poller = {.fd = fd_, .events = POLLIN};
      if (poll(&poller, 1, 5'000) <= 0) break;
      char buffer[4096];
      const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
      if (n <= 0) {
        closed_ = true;
        break;
      }
      received_.append(buffer, static_cast<size_t>(n));
    }
    return std::exchange(received_, {});
  }
  std::string ReadToEnd() { return ReadUntil("no such text"); }
  bool closed() const { return closed_; }

 private:
  int fd_;
  std::string received_;
  bool closed_ = false;
};

class HttpServerTest : public testing::Test {
 protected:
  void StartServer(HttpServerOptions options = {}) {
    options.port = 0;
    options.threads = 2;
    options.sweep_interval = 20ms;
    auto server = HttpServer::Create(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    server_->Start({.handler = [this](std::shared_ptr<HttpExchange> e) { Handle(std::move(e)); },
                    .error =
                        [](const HttpRequest*, int status, const std::string& message) {
                          return HttpResponse{.status = status, .body = message};
                        },
                    .check_head = [](const HttpRequest& head) -> std::optional<HttpResponse> {
                      if (head.path != "/secret") return std::nullopt;
                      return HttpResponse{.status = 401, .body = "no"};
                    }});
  }
  void TearDown() override {
    if (server_ != nullptr) server_->Stop();
  }

  void Handle(std::shared_ptr<HttpExchange> exchange) {
    const std::string& path = exchange->request().path;
    if (path == "/echo") {
      return exchange->Send({.body = exchange->request().body});
    }
    exchange->OnClientGone([this] { ++gone_; });
    if (path == "/stream") {
      exchange->StartStream({});
      exchange->WriteStream("data: 1\n\n");
      exchange->WriteStream("data: 2\n\n");
      return exchange->EndStream();
    }
    if (path == "/open") exchange->StartStream({});
    if (path == "/flood") {
      exchange->StartStream({});
      const std::string event(32'768, 'x');
      for (int i = 0; i < 400; ++i) exchange->WriteStream(event);
      pending_ = exchange->pending_bytes();
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    held_.push_back(std::move(exchange));
  }

  bool WaitForGone(int count) {
    for (int i = 0; i < 500 && gone_ < count; ++i) std::this_thread::sleep_for(10ms);
    return gone_ == count;
  }

  std::unique_ptr<HttpServer> server_;
  std::atomic<int> gone_ = 0;
  std::atomic<size_t> pending_ = 0;
  std::mutex mutex_;
  std::vector<std::shared_ptr<HttpExchange>> held_;
};

TEST_F(HttpServerTest, KeepAliveAndPipelining) {
  StartServer();
  Client client(server_->port());
  for (int i = 0; i < 3; ++i) {
    client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi");
    EXPECT_NE(client.ReadUntil("hi").find("HTTP/1.1 200 OK"), std::string::npos);
  }
  std::string many;
  for (int i = 0; i < 50; ++i)
    many += "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc";
  client.Send(
      many +
      "POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 4\r\n\r\nlast");
  const std::string all = client.ReadToEnd();
  EXPECT_TRUE(client.closed());
  EXPECT_TRUE(all.ends_with("last"));
  size_t answers = 0;
  for (size_t at = all.find("abc"); at != std::string::npos; at = all.find("abc", at + 1))
    ++answers;
  EXPECT_EQ(answers, 50u);
}

TEST_F(HttpServerTest, StreamsInChunksAndUnframedForHttp10) {
  StartServer();
  Client modern(server_->port());
  modern.Send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string chunked = modern.ReadUntil("0\r\n\r\n");
  EXPECT_NE(chunked.find("Content-Type: text/event-stream\r\n"), std::string::npos);
  EXPECT_NE(chunked.find("Cache-Control: no-cache\r\n"), std::string::npos);
  EXPECT_NE(chunked.find("X-Accel-Buffering: no\r\n"), std::string::npos);
  EXPECT_NE(chunked.find("\r\n\r\n9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n"),
            std::string::npos);
  Client old(server_->port());
  old.Send("GET /stream HTTP/1.0\r\n\r\n");
  EXPECT_TRUE(old.ReadToEnd().ends_with("\r\n\r\ndata: 1\n\ndata: 2\n\n"));
  EXPECT_TRUE(old.closed());
}

// Field case 3: seen while streaming and while nothing is written; a half-closed client counts.
TEST_F(HttpServerTest, NoticesTheClientLeave) {
  StartServer();
  int expected = 0;
  for (const char* path : {"/open", "/wait"}) {
    for (const bool half : {false, true}) {
      Client client(server_->port());
      client.Send(std::string("GET ") + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
      for (int i = 0; i < 500; ++i) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (static_cast<int>(held_.size()) > expected) break;
        std::this_thread::sleep_for(2ms);
      }
      half ? client.HalfClose() : client.Close();
      EXPECT_TRUE(WaitForGone(++expected)) << path << half;
    }
  }
}

TEST_F(HttpServerTest, SlowReaderIsQueuedThenGone) {
  HttpServerOptions options;
  options.write_timeout = 200ms;
  StartServer(options);
  Client client(server_->port(), 4096);
  client.Send("GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(WaitForGone(1));
  EXPECT_GT(pending_, 0u);
}

TEST_F(HttpServerTest, SilentStreamGetsComments) {
  HttpServerOptions options;
  options.sse_keep_alive = 50ms;
  StartServer(options);
  Client client(server_->port());
  client.Send("GET /open HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_NE(client.ReadUntil(": keep-alive\n\n").find(": keep-alive\n\n"), std::string::npos);
}

TEST_F(HttpServerTest, TimeoutsOfHeadBodyAndIdle) {
  HttpServerOptions options;
  options.head_timeout = options.body_timeout = options.idle_timeout = 100ms;
  StartServer(options);
  Client idle(server_->port());
  EXPECT_EQ(idle.ReadToEnd(), "");
  EXPECT_TRUE(idle.closed());
  Client head(server_->port());
  head.Send("GET / HT");
  EXPECT_TRUE(head.ReadToEnd().starts_with("HTTP/1.1 408"));
  Client body(server_->port());
  body.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab");
  EXPECT_TRUE(body.ReadToEnd().starts_with("HTTP/1.1 408"));
}

TEST_F(HttpServerTest, ExpectContinueOnlyForWelcomeBodies) {
  StartServer();
  Client client(server_->port());
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("ok");
  EXPECT_TRUE(client.ReadUntil("\r\n\r\nok").ends_with("ok"));
  Client refused(server_->port());
  refused.Send(
      "POST /secret HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_TRUE(refused.ReadToEnd().starts_with("HTTP/1.1 401"));
}

TEST_F(HttpServerTest, RefusalKeepsTheConnectionWhenTheBodyIsSmall) {
  StartServer();
  Client client(server_->port());
  client.Send("POST /secret HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n12345");
  EXPECT_TRUE(client.ReadUntil("no").starts_with("HTTP/1.1 401"));
  client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi");
  EXPECT_TRUE(client.ReadUntil("hi").starts_with("HTTP/1.1 200"));
}

// Field case 42: the answer can be read although the body was never taken.
TEST_F(HttpServerTest, TooLargeIsReadableBeforeTheClose) {
  HttpServerOptions options;
  options.limits.max_body_bytes = 1000;
  StartServer(options);
  Client client(server_->port());
  client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n");
  client.Send(std::string(200'000, 'x'));
  const std::string answer = client.ReadToEnd();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 413")) << answer;
  EXPECT_NE(answer.find("Connection: close"), std::string::npos);
}

TEST_F(HttpServerTest, HeadHasNoBody) {
  StartServer();
  Client client(server_->port());
  client.Send("HEAD /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi");
  const std::string answer = client.ReadToEnd();
  EXPECT_NE(answer.find("Content-Length: 2\r\n"), std::string::npos);
  EXPECT_TRUE(answer.ends_with("\r\n\r\n"));
}

TEST_F(HttpServerTest, TakenPortIsAClearError) {
  StartServer();
  const auto second = HttpServer::Create({.port = server_->port()});
  ASSERT_FALSE(second.ok());
  EXPECT_NE(std::string(second.status().message()).find("choose another --port"),
            std::string::npos);
  EXPECT_FALSE(HttpServer::Create({.host = "no.such.host.invalid"}).ok());
}

TEST_F(HttpServerTest, UnixSocketReplacesAStaleSocketOnly) {
  const std::string path = testing::TempDir() + "/penstock-http-test.sock";
  unlink(path.c_str());
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const int stale = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(bind(stale, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  close(stale);  // the file stays, as after a crash
  auto first = HttpServer::Create({.uds = path});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ((*first)->port(), 0);
  EXPECT_FALSE(HttpServer::Create({.uds = path}).ok()) << "a live one is left alone";

  const std::string file = testing::TempDir() + "/penstock-http-test.txt";
  std::ofstream(file) << "mine";
  EXPECT_FALSE(HttpServer::Create({.uds = file}).ok());
  EXPECT_EQ(access(file.c_str(), F_OK), 0) << "no socket: not ours to remove";
}

}  // namespace
}  // namespace penstock
