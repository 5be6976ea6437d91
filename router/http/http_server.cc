#include "router/http/http_server.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/base/status.h"
#include "router/http/io_thread.h"
#include "router/http/listener.h"

namespace penstock {
namespace {

// Accepts on the first io thread and deals the sockets out in turn.
class Acceptor {
 public:
  using Threads = std::vector<std::unique_ptr<IoThread>>;

  Acceptor(ListeningSocket listening, Threads& threads, std::atomic<size_t>& turn)
      : listening_(listening),
        threads_(threads),
        turn_(turn),
        descriptor_(threads.front()->context(), listening.fd),
        pause_(threads.front()->context()) {}

  void Wait() {
    descriptor_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                           [this](const boost::system::error_code& error) {
                             if (!error) AcceptAll();
                           });
  }

  void Close() {
    boost::system::error_code ignored;
    descriptor_.close(ignored);
    pause_.cancel();
  }

 private:
  void AcceptAll() {
    for (;;) {
      AcceptedSocket accepted = AcceptOne(listening_);
      if (accepted.fd >= 0) {
        threads_[turn_++ % threads_.size()]->Adopt(accepted.fd, listening_.family,
                                                   std::move(accepted.peer));
        continue;
      }
      if (accepted.error == EINTR || accepted.error == ECONNABORTED) continue;
      if (accepted.error == EAGAIN) return Wait();
      return Pause(accepted.error);
    }
  }

  // Out of descriptors or memory: what comes waits in the kernel.
  void Pause(int error) {
    LogWarning("http: cannot accept a connection: %s; raise the limit of open files (ulimit -n)",
               strerror(error));
    pause_.expires_after(std::chrono::milliseconds(200));
    pause_.async_wait([this](const boost::system::error_code& cancelled) {
      if (!cancelled) AcceptAll();
    });
  }

  const ListeningSocket listening_;
  Threads& threads_;
  std::atomic<size_t>& turn_;
  boost::asio::posix::stream_descriptor descriptor_;
  boost::asio::steady_timer pause_;
};

class HttpServerImpl final : public HttpServer {
 public:
  HttpServerImpl(HttpServerOptions options, std::vector<ListeningSocket> sockets)
      : options_(std::move(options)), port_(options_.port) {
    for (int i = 0; i < std::max(1, options_.threads); ++i) {
      threads_.push_back(std::make_unique<IoThread>(options_, hooks_));
    }
    for (const ListeningSocket& socket : sockets) {
      acceptors_.push_back(std::make_unique<Acceptor>(socket, threads_, turn_));
    }
  }

  ~HttpServerImpl() override { Stop(); }

  void Start(HttpHooks hooks) override {
    hooks_ = std::move(hooks);
    for (const auto& acceptor : acceptors_) acceptor->Wait();
    for (const auto& thread : threads_) thread->Run();
  }

  int port() const override { return options_.uds.empty() ? port_ : 0; }

  void StopKeepAlive() override {
    for (const auto& thread : threads_) thread->StopKeepAlive();
  }

  void Stop() override {
    if (std::exchange(stopped_, true)) return;
    boost::asio::post(threads_.front()->context(), [this] {
      for (const auto& acceptor : acceptors_) acceptor->Close();
    });
    for (const auto& thread : threads_) thread->Stop();
    if (!options_.uds.empty()) unlink(options_.uds.c_str());
  }

 private:
  const HttpServerOptions options_;
  const int port_;
  HttpHooks hooks_;
  bool stopped_ = false;
  std::atomic<size_t> turn_ = 0;
  std::vector<std::unique_ptr<IoThread>> threads_;
  std::vector<std::unique_ptr<Acceptor>> acceptors_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Create(HttpServerOptions options) {
  std::vector<ListeningSocket> sockets;
  if (!options.uds.empty()) {
    ASSIGN_OR_RETURN(const ListeningSocket socket, ListenUnix(options.uds));
    sockets.push_back(socket);
  } else {
    ASSIGN_OR_RETURN(sockets, ListenTcp(options.host, &options.port));
  }
  return std::make_unique<HttpServerImpl>(std::move(options), std::move(sockets));
}

}  // namespace penstock
