#pragma once

// One client connection: reads requests, hands them to the handler one at a time, writes what it
// answers, and notices when the client leaves (the read side is always watched; a half-closed
// client counts as gone). Lives on one io thread. Includes Asio: for router/http only.

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "router/http/io_thread.h"
#include "router/http/request_parser.h"

namespace penstock {

class Exchange;

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;

  Connection(IoThread& thread, Socket socket, std::string peer);
  ~Connection();
  void Start();
  // Timeouts and keep-alive comments.
  void Sweep(int64_t now_ns);
  void Close();

  // From the exchange.
  IoThread& thread() { return thread_; }
  void SendResponse(const HttpRequest& request, HttpResponse response);
  void StartStream(const HttpHeaders& headers);
  void WriteStream(std::string_view events);
  void EndStream();
  size_t pending_bytes() const { return out_.size() - out_begin_; }
  void OnDrained(std::function<void()> callback);

 private:
  enum class State {
    kReading,    // a request, or nothing yet
    kHandling,   // the handler has it
    kFlushing,   // the response is complete, not all of it written
    kLingering,  // closing: written, waiting for the client to read it and close
    kClosed,
  };

  void ReadSome();
  void OnReadable();
  void OnEof();
  void Pump(std::string_view bytes);
  // Whether bytes that come are part of a request.
  bool Wanted() const { return state_ != State::kLingering && state_ != State::kClosed; }
  void Feed(std::string_view* input);
  void OnHead(bool more_input);
  void SendError(int status, const std::string& message);
  void Dispatch();
  void ResponseEnded();
  void AfterFlush();
  void NextRequest();
  void BeginLinger();
  void ClientGone();
  void OnDeadline();
  void Write(std::initializer_list<std::string_view> parts);
  void WriteBroke();
  void WaitWritable();
  void OnWritable();
  std::string RenderHead(const HttpResponse& response, std::string_view framing);
  void SetDeadline(std::chrono::milliseconds timeout);

  IoThread& thread_;
  Socket socket_;
  const std::string peer_;
  RequestParser parser_;
  State state_ = State::kReading;
  std::string in_;        // bytes that came while a request was being handled
  bool feeding_ = false;  // inside Feed
  bool reading_ = false;  // a read wait is pending
  bool eof_ = false;
  bool in_body_ = false;  // the head of the current request was taken
  std::shared_ptr<Exchange> exchange_;
  std::optional<HttpResponse> refusal_;  // to send once the body is read
  bool close_after_ = false;
  bool streaming_ = false;
  bool broken_ = false;  // a write failed

  std::string out_;  // not accepted by the socket yet, from out_begin_ on
  size_t out_begin_ = 0;
  bool write_waiting_ = false;
  std::function<void()> drained_;

  int64_t deadline_ns_ = 0;        // of the current read phase
  int64_t write_progress_ns_ = 0;  // last time a byte was accepted
  int64_t last_event_ns_ = 0;      // when a sweep last saw that a stream had said something
  bool wrote_event_ = false;       // since the last sweep
};

// Handed to handlers; outlives its connection harmlessly.
class Exchange final : public HttpExchange {
 public:
  Exchange(Connection& connection, HttpRequest request)
      : connection_(&connection), thread_(connection.thread()), request_(std::move(request)) {}

  const HttpRequest& request() const override { return request_; }
  HttpRequest& mutable_request() override { return request_; }
  IoExecutor& executor() override { return thread_; }
  void Send(HttpResponse response) override;
  void StartStream(HttpHeaders headers) override;
  void WriteStream(std::string_view events) override;
  void EndStream() override;
  size_t pending_bytes() const override;
  void OnDrained(std::function<void()> callback) override;
  void OnClientGone(std::function<void()> callback) override { gone_ = std::move(callback); }

  // The response ended: every later call is a no-op.
  void Detach() {
    connection_ = nullptr;
    gone_ = nullptr;
  }
  void ClientGone();

 private:
  Connection* connection_;
  IoThread& thread_;
  HttpRequest request_;
  std::function<void()> gone_;
};

}  // namespace penstock
