#include "router/http/io_thread.h"

#include <pthread.h>
#include <unistd.h>

#include <boost/asio/post.hpp>
#include <chrono>
#include <ctime>

#include "common/base/log.h"
#include "router/http/connection.h"

namespace penstock {

int64_t SteadyNowNs() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

IoThread::IoThread(const HttpServerOptions& options, const HttpHooks& hooks)
    : options_(options),
      hooks_(hooks),
      context_(1),
      work_(boost::asio::make_work_guard(context_)),
      timer_(context_) {}

IoThread::~IoThread() { Stop(); }

void IoThread::Post(std::function<void()> task) { boost::asio::post(context_, std::move(task)); }

void IoThread::Run() {
  Sweep();
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "http");
    // A stray exception of a library costs the connection that it hit, not the process.
    while (!context_.stopped()) {
      try {
        context_.run();
        return;
      } catch (const std::exception& e) {
        LogError("http: exception in an io thread: %s", e.what());
      }
    }
  });
}

void IoThread::Stop() {
  if (!thread_.joinable()) return;
  boost::asio::post(context_, [this] {
    CloseAll();
    // Behind what the closing itself posted.
    boost::asio::post(context_, [this] { context_.stop(); });
  });
  thread_.join();
}

void IoThread::Adopt(int fd, int family, std::string peer) {
  boost::asio::post(context_, [this, fd, family, peer = std::move(peer)]() mutable {
    Connection::Socket socket(context_);
    boost::system::error_code error;
    socket.assign(boost::asio::generic::stream_protocol(family, 0), fd, error);
    if (error) {
      close(fd);
      return;
    }
    const auto connection = std::make_shared<Connection>(*this, std::move(socket), std::move(peer));
    connections_.insert(connection);
    connection->Start();
  });
}

std::string_view IoThread::date(int64_t now_ns) {
  const int64_t second = now_ns / 1'000'000'000;
  if (second != date_second_) {
    date_second_ = second;
    const std::time_t now = std::time(nullptr);
    std::tm utc = {};
    gmtime_r(&now, &utc);
    char text[64];
    const size_t size =
        std::strftime(text, sizeof text, "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &utc);
    date_.assign(text, size);
  }
  return date_;
}

void IoThread::StopKeepAlive() {
  boost::asio::post(context_, [this] { keep_alive_ = false; });
}

void IoThread::Sweep() {
  timer_.expires_after(options_.sweep_interval);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    const std::vector<std::shared_ptr<Connection>> all(connections_.begin(), connections_.end());
    const int64_t now = SteadyNowNs();
    for (const auto& connection : all) connection->Sweep(now);
    Sweep();
  });
}

void IoThread::CloseAll() {
  const std::vector<std::shared_ptr<Connection>> all(connections_.begin(), connections_.end());
  for (const auto& connection : all) connection->Close();
}

}  // namespace penstock
