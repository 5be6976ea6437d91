#include "router/http/connection.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <charconv>

#include "absl/strings/str_format.h"

namespace penstock {
namespace {

// More than this from a client that does not wait for its answer is left in the kernel.
constexpr size_t kMaxReadAhead = 64 << 10;
// A refused request's body up to this size is read, so that the connection stays usable.
constexpr uint64_t kMaxDrainedBody = 64 << 10;
// OnDrained calls back when no more than this is waiting.
constexpr size_t kLowWater = 8 << 10;
// A chunk up to this size is put together in memory.
constexpr size_t kMaxCopiedChunk = 4 << 10;
constexpr std::chrono::milliseconds kLinger{3'000};

std::string_view Reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Status";
  }
}

// One chunk's first line.
std::string_view ChunkHead(size_t size, std::array<char, 20>* buffer) {
  char* end = std::to_chars(buffer->data(), buffer->data() + 16, size, 16).ptr;
  *end++ = '\r';
  *end++ = '\n';
  return {buffer->data(), static_cast<size_t>(end - buffer->data())};
}

ssize_t SendNow(int fd, std::initializer_list<std::string_view> parts) {
  constexpr int kFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
  if (parts.size() == 1) return send(fd, parts.begin()->data(), parts.begin()->size(), kFlags);
  std::array<iovec, 4> vectors;
  size_t count = 0;
  for (const std::string_view part : parts) {
    if (part.empty()) continue;
    vectors[count++] = {const_cast<char*>(part.data()), part.size()};
  }
  msghdr message = {};
  message.msg_iov = vectors.data();
  message.msg_iovlen = count;
  return sendmsg(fd, &message, kFlags);
}

bool AsksToClose(const HttpResponse& response) {
  for (const auto& [name, value] : response.headers) {
    if (name == "connection" && value == "close") return true;
  }
  return false;
}

}  // namespace

Connection::Connection(IoThread& thread, Socket socket, std::string peer)
    : thread_(thread),
      socket_(std::move(socket)),
      peer_(std::move(peer)),
      parser_(thread.options().limits) {}

Connection::~Connection() = default;

void Connection::Start() {
  SetDeadline(thread_.options().head_timeout);
  ReadSome();
}

void Connection::SetDeadline(std::chrono::milliseconds timeout) {
  deadline_ns_ = SteadyNowNs() + std::chrono::nanoseconds(timeout).count();
}

// ---- Reading ----

void Connection::ReadSome() {
  if (reading_ || eof_ || state_ == State::kClosed || in_.size() > kMaxReadAhead) return;
  reading_ = true;
  socket_.async_wait(Socket::wait_read,
                     [self = shared_from_this()](const boost::system::error_code& error) {
                       self->reading_ = false;
                       if (!error && self->state_ != State::kClosed) self->OnReadable();
                     });
}

void Connection::OnReadable() {
  std::vector<char>& scratch = thread_.scratch();
  const ssize_t n = recv(socket_.native_handle(), scratch.data(), scratch.size(), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return ReadSome();
  if (n <= 0) {
    eof_ = true;
    return OnEof();
  }
  if (state_ != State::kLingering) Pump({scratch.data(), static_cast<size_t>(n)});
  ReadSome();
}

void Connection::OnEof() {
  if (state_ == State::kHandling) return ClientGone();
  if (state_ == State::kFlushing) {
    close_after_ = true;  // it may still read what is on its way
    return;
  }
  Close();
}

// Parses what can be parsed now and keeps the rest.
void Connection::Pump(std::string_view bytes) {
  if (in_.empty()) {
    Feed(&bytes);
    if (Wanted()) in_.append(bytes);
    return;
  }
  std::string all = std::exchange(in_, {});
  all.append(bytes);
  std::string_view rest = all;
  Feed(&rest);
  if (Wanted()) in_.append(rest);
}

void Connection::Feed(std::string_view* input) {
  feeding_ = true;
  while (state_ == State::kReading) {
    const bool was_idle = parser_.idle();
    const RequestParser::Event event = parser_.Feed(input);
    if (event == RequestParser::Event::kNeedMore) {
      if (in_body_) {
        SetDeadline(thread_.options().body_timeout);
      } else if (was_idle && !parser_.idle()) {
        SetDeadline(thread_.options().head_timeout);
      }
      break;
    }
    if (event == RequestParser::Event::kError) {
      SendError(parser_.error_status(), parser_.error_message());
    } else if (event == RequestParser::Event::kHead) {
      OnHead(!input->empty());
    } else {
      Dispatch();
    }
  }
  feeding_ = false;
}

void Connection::OnHead(bool more_input) {
  in_body_ = true;
  HttpRequest& request = parser_.request();
  request.peer = peer_;
  request.received_ns = SteadyNowNs();
  SetDeadline(thread_.options().body_timeout);
  if (thread_.hooks().check_head) refusal_ = thread_.hooks().check_head(request);
  const bool awaited = parser_.expects_continue() && parser_.has_body() && !more_input;
  if (!refusal_.has_value()) {
    if (awaited) Write({"HTTP/1.1 100 Continue\r\n\r\n"});
    return;
  }
  parser_.DiscardBody();
  if (!parser_.has_body() || (!awaited && parser_.announced_bytes() <= kMaxDrainedBody)) return;
  refusal_->headers.emplace_back("connection", "close");
  Dispatch();
}

void Connection::SendError(int status, const std::string& message) {
  HttpResponse response = thread_.hooks().error(&parser_.request(), status, message);
  response.headers.emplace_back("connection", "close");
  state_ = State::kHandling;
  SendResponse(parser_.request(), std::move(response));
}

void Connection::Dispatch() {
  state_ = State::kHandling;
  deadline_ns_ = 0;
  exchange_ = std::make_shared<Exchange>(*this, std::move(parser_.request()));
  const std::shared_ptr<Exchange> exchange = exchange_;
  if (refusal_.has_value()) {
    HttpResponse refusal = *std::exchange(refusal_, std::nullopt);
    return exchange->Send(std::move(refusal));
  }
  thread_.hooks().handler(exchange);
}

void Connection::NextRequest() {
  parser_.Reset();
  in_body_ = false;
  state_ = State::kReading;
  SetDeadline(in_.empty() ? thread_.options().idle_timeout : thread_.options().head_timeout);
  if (feeding_) return;  // it goes on by itself
  // Not from here: the caller is a handler's code.
  if (!in_.empty()) {
    boost::asio::post(thread_.context(), [self = shared_from_this()] {
      if (self->state_ == State::kReading) self->Pump({});
      self->ReadSome();
    });
  }
  ReadSome();
}

// ---- The end of things ----

void Connection::ResponseEnded() {
  streaming_ = false;
  if (exchange_ != nullptr) {
    const std::shared_ptr<Exchange> exchange = std::exchange(exchange_, nullptr);
    exchange->Detach();
  }
  drained_ = nullptr;
  if (state_ == State::kClosed) return;
  state_ = State::kFlushing;
  if (pending_bytes() == 0) AfterFlush();
}

void Connection::AfterFlush() {
  if (close_after_ || eof_) return BeginLinger();
  NextRequest();
}

// The client must be able to read the answer before the socket goes: a close with unread bytes in
// it would be a reset.
void Connection::BeginLinger() {
  if (eof_) return Close();
  boost::system::error_code ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
  state_ = State::kLingering;
  in_.clear();
  SetDeadline(kLinger);
  ReadSome();
}

void Connection::ClientGone() {
  if (state_ == State::kClosed) return;
  const std::shared_ptr<Exchange> exchange = std::exchange(exchange_, nullptr);
  Close();
  if (exchange != nullptr) exchange->ClientGone();
}

void Connection::Close() {
  if (state_ == State::kClosed) return;
  const std::shared_ptr<Connection> self = shared_from_this();
  state_ = State::kClosed;
  if (exchange_ != nullptr) {
    const std::shared_ptr<Exchange> exchange = std::exchange(exchange_, nullptr);
    exchange->ClientGone();
  }
  drained_ = nullptr;
  out_.clear();
  out_begin_ = 0;
  boost::system::error_code ignored;
  socket_.close(ignored);
  thread_.Remove(self);
}

void Connection::Sweep(int64_t now_ns) {
  const HttpServerOptions& options = thread_.options();
  const auto after = [now_ns](int64_t since_ns, std::chrono::milliseconds timeout) {
    return now_ns - since_ns > std::chrono::nanoseconds(timeout).count();
  };
  if (pending_bytes() > 0 && after(write_progress_ns_, options.write_timeout)) return ClientGone();
  if (state_ == State::kReading && !thread_.keep_alive() && parser_.idle()) return BeginLinger();
  if (deadline_ns_ != 0 && now_ns > deadline_ns_) return OnDeadline();
  if (std::exchange(wrote_event_, false)) last_event_ns_ = now_ns;
  if (streaming_ && pending_bytes() == 0 && options.sse_keep_alive.count() > 0 &&
      after(last_event_ns_, options.sse_keep_alive)) {
    WriteStream(": keep-alive\n\n");
  }
}

void Connection::OnDeadline() {
  if (state_ == State::kReading && !parser_.idle()) {
    deadline_ns_ = 0;
    return SendError(408, in_body_ ? "the request body stopped coming"
                                   : "the request head was not complete in time");
  }
  if (state_ == State::kReading || state_ == State::kLingering) Close();
}

// ---- Writing ----

std::string Connection::RenderHead(const HttpResponse& response, std::string_view framing) {
  std::string head =
      absl::StrFormat("HTTP/1.1 %d %s\r\n", response.status, Reason(response.status));
  head.append(thread_.date(SteadyNowNs()));
  if (response.status != 204) {
    head.append("Content-Type: ").append(response.content_type).append("\r\n");
  }
  for (const auto& [name, value] : response.headers) {
    if (name == "connection") continue;
    head.append(name).append(": ").append(value).append("\r\n");
  }
  head.append(framing);
  if (close_after_) {
    head.append("Connection: close\r\n");
  } else if (parser_.http_1_0()) {
    head.append("Connection: keep-alive\r\n");
  }
  head.append("\r\n");
  return head;
}

void Connection::SendResponse(const HttpRequest& request, HttpResponse response) {
  if (state_ != State::kHandling || streaming_) return;
  close_after_ = !parser_.keep_alive() || !thread_.keep_alive() || AsksToClose(response);
  const std::string framing = response.status == 204
                                  ? std::string()
                                  : absl::StrFormat("Content-Length: %d\r\n", response.body.size());
  const std::string head = RenderHead(response, framing);
  const bool with_body = request.method != "HEAD" && response.status != 204;
  Write({head, with_body ? std::string_view(response.body) : std::string_view()});
  ResponseEnded();
}

void Connection::StartStream(const HttpHeaders& headers) {
  if (state_ != State::kHandling || streaming_) return;
  HttpResponse response;
  response.content_type = "text/event-stream";
  response.headers = headers;
  response.headers.emplace_back("Cache-Control", "no-cache");
  response.headers.emplace_back("X-Accel-Buffering", "no");
  // Without chunks the end of the connection is the end of the body.
  close_after_ = !parser_.keep_alive() || parser_.http_1_0() || !thread_.keep_alive();
  streaming_ = true;
  last_event_ns_ = SteadyNowNs();
  Write({RenderHead(response, parser_.http_1_0() ? "" : "Transfer-Encoding: chunked\r\n")});
}

void Connection::WriteStream(std::string_view events) {
  if (!streaming_ || events.empty()) return;
  wrote_event_ = true;
  if (parser_.http_1_0()) return Write({events});
  std::array<char, 20> buffer;
  const std::string_view head = ChunkHead(events.size(), &buffer);
  if (events.size() > kMaxCopiedChunk) return Write({head, events, "\r\n"});
  // A send of one piece costs the kernel less than one of three; the copy is cheaper than that.
  std::string& frame = thread_.frame();
  frame.assign(head).append(events).append("\r\n");
  Write({frame});
}

void Connection::EndStream() {
  if (!streaming_) return;
  if (!parser_.http_1_0()) Write({"0\r\n\r\n"});
  ResponseEnded();
}

// Direct, non-blocking; only what the socket does not take is copied and waits.
void Connection::Write(std::initializer_list<std::string_view> parts) {
  if (state_ == State::kClosed || broken_) return;
  size_t sent = 0;
  if (pending_bytes() == 0) {
    const ssize_t n = SendNow(socket_.native_handle(), parts);
    if (n < 0 && errno != EAGAIN && errno != EINTR) return WriteBroke();
    sent = n > 0 ? static_cast<size_t>(n) : 0;
  }
  for (const std::string_view part : parts) {
    const size_t skip = std::min(sent, part.size());
    sent -= skip;
    out_.append(part.substr(skip));
  }
  if (pending_bytes() > 0) WaitWritable();
}

// Not at once: the caller may be in the middle of what its cancellation ends.
void Connection::WriteBroke() {
  broken_ = true;
  out_.clear();
  out_begin_ = 0;
  boost::asio::post(thread_.context(), [self = shared_from_this()] { self->ClientGone(); });
}

void Connection::WaitWritable() {
  if (write_waiting_) return;
  write_waiting_ = true;
  write_progress_ns_ = SteadyNowNs();
  socket_.async_wait(Socket::wait_write,
                     [self = shared_from_this()](const boost::system::error_code& error) {
                       self->write_waiting_ = false;
                       if (!error && self->state_ != State::kClosed) self->OnWritable();
                     });
}

void Connection::OnWritable() {
  const ssize_t n = send(socket_.native_handle(), out_.data() + out_begin_, pending_bytes(),
                         MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n < 0 && errno != EAGAIN && errno != EINTR) return WriteBroke();
  if (n > 0) {
    out_begin_ += static_cast<size_t>(n);
    write_progress_ns_ = SteadyNowNs();
  }
  if (pending_bytes() > 0) {
    WaitWritable();
  } else {
    out_.clear();
    out_begin_ = 0;
    if (state_ == State::kFlushing) return AfterFlush();
  }
  if (drained_ && pending_bytes() <= kLowWater) std::exchange(drained_, nullptr)();
}

void Connection::OnDrained(std::function<void()> callback) {
  drained_ = std::move(callback);
  if (pending_bytes() > kLowWater) return;
  boost::asio::post(thread_.context(), [self = shared_from_this()] {
    if (self->drained_) std::exchange(self->drained_, nullptr)();
  });
}

// ---- Exchange ----

void Exchange::Send(HttpResponse response) {
  if (connection_ != nullptr) connection_->SendResponse(request_, std::move(response));
}

void Exchange::StartStream(HttpHeaders headers) {
  if (connection_ != nullptr) connection_->StartStream(headers);
}

void Exchange::WriteStream(std::string_view events) {
  if (connection_ != nullptr) connection_->WriteStream(events);
}

void Exchange::EndStream() {
  if (connection_ != nullptr) connection_->EndStream();
}

size_t Exchange::pending_bytes() const {
  return connection_ == nullptr ? 0 : connection_->pending_bytes();
}

void Exchange::OnDrained(std::function<void()> callback) {
  if (connection_ != nullptr) connection_->OnDrained(std::move(callback));
}

void Exchange::ClientGone() {
  connection_ = nullptr;
  if (gone_) std::exchange(gone_, nullptr)();
}

}  // namespace penstock
