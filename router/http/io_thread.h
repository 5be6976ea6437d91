#pragma once

// One io thread: its io_context, its connections, its sweep. Includes Asio: for router/http only.

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/unordered/unordered_flat_set.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "router/http/http_server.h"

namespace penstock {

class Connection;

class IoThread final : public IoExecutor {
 public:
  IoThread(const HttpServerOptions& options, const HttpHooks& hooks);
  ~IoThread() override;

  void Post(std::function<void()> task) override;
  void Run();
  void Stop();  // any thread; joins

  // Takes an accepted socket. Any thread.
  void Adopt(int fd, int family, std::string peer);

  // On this thread only.
  void Remove(const std::shared_ptr<Connection>& connection) { connections_.erase(connection); }
  const HttpServerOptions& options() const { return options_; }
  const HttpHooks& hooks() const { return hooks_; }
  boost::asio::io_context& context() { return context_; }
  std::vector<char>& scratch() { return scratch_; }
  std::string& frame() { return frame_; }  // for putting one write together
  // "Date: ..." of the current second.
  std::string_view date(int64_t now_ns);
  bool keep_alive() const { return keep_alive_; }
  void StopKeepAlive();  // any thread

 private:
  void Sweep();
  void CloseAll();

  const HttpServerOptions& options_;
  const HttpHooks& hooks_;
  boost::asio::io_context context_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  boost::asio::steady_timer timer_;
  boost::unordered_flat_set<std::shared_ptr<Connection>> connections_;
  std::vector<char> scratch_ = std::vector<char>(64 << 10);
  std::string frame_;
  std::string date_;
  int64_t date_second_ = -1;
  bool keep_alive_ = true;
  std::thread thread_;
};

int64_t SteadyNowNs();

}  // namespace penstock
