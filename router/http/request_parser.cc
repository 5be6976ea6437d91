#include "router/http/request_parser.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_format.h"

namespace penstock {
namespace {

bool IsTokenChar(char c) {
  if ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')) return true;
  return c != '\0' && std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool IsToken(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), IsTokenChar);
}

bool IsFieldChar(char c) {
  return c == '\t' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7F);
}

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string ToLower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), Lower);
  return out;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

constexpr size_t kMaxChunkLine = 1024;
constexpr size_t kMaxTrailerBytes = 8 << 10;

}  // namespace

bool NormalizePath(std::string_view raw, std::string* out) {
  std::string decoded;
  for (size_t i = 0; i < raw.size(); ++i) {
    char c = raw[i];
    if (c == '%') {
      if (i + 2 >= raw.size()) return false;
      const int high = HexDigit(raw[i + 1]);
      const int low = HexDigit(raw[i + 2]);
      if (high < 0 || low < 0) return false;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return false;
    decoded.push_back(c);
  }
  std::vector<std::string_view> segments;
  for (std::string_view rest = decoded; !rest.empty();) {
    const size_t slash = std::min(rest.find('/'), rest.size());
    const std::string_view segment = rest.substr(0, slash);
    rest.remove_prefix(std::min(slash + 1, rest.size()));
    if (segment.empty() || segment == ".") continue;
    if (segment == "..") {
      if (!segments.empty()) segments.pop_back();
      continue;
    }
    segments.push_back(segment);
  }
  out->clear();
  for (const std::string_view segment : segments) out->append("/").append(segment);
  if (out->empty()) out->push_back('/');
  return true;
}

void RequestParser::Reset() {
  state_ = State::kHead;
  request_ = HttpRequest();
  head_.clear();
  line_.clear();
  http_1_0_ = expects_continue_ = chunked_ = discard_ = false;
  keep_alive_ = true;
  body_left_ = body_bytes_ = 0;
  trailer_bytes_ = 0;
}

RequestParser::Event RequestParser::Fail(int status, std::string message) {
  state_ = State::kError;
  error_status_ = status;
  error_message_ = std::move(message);
  return Event::kError;
}

RequestParser::Event RequestParser::Feed(std::string_view* input) {
  for (;;) {
    const State before = state_;
    Event event = Event::kNeedMore;
    switch (state_) {
      case State::kHead:
        return FeedHead(input);
      case State::kBody:
      case State::kChunkData:
        event = FeedBody(input);
        break;
      case State::kChunkSize:
        event = FeedChunkSize(input);
        break;
      case State::kChunkEnd:
        event = FeedChunkEnd(input);
        break;
      case State::kTrailer:
        event = FeedTrailer(input);
        break;
      case State::kDone:
        return Event::kDone;
      case State::kError:
        return Event::kError;
    }
    if (event != Event::kNeedMore || state_ == before) return event;
  }
}

// Looks at every byte once: an end of line without CR is an error at once, not a wait.
RequestParser::Event RequestParser::FeedHead(std::string_view* input) {
  while (!input->empty()) {
    // Everything up to the next LF in one go.
    const size_t lf = input->find('\n');
    const size_t take = lf == std::string_view::npos ? input->size() : lf + 1;
    if (head_.empty() && (*input)[0] != '\r' && !IsTokenChar((*input)[0])) {
      return Fail(400,
                  "the request does not begin with an HTTP method (this port speaks plain HTTP)");
    }
    if (head_.size() + take > limits_.max_head_bytes) {
      return Fail(
          431, absl::StrFormat("the request head is larger than %d bytes", limits_.max_head_bytes));
    }
    head_.append(input->substr(0, take));
    input->remove_prefix(take);
    if (lf == std::string_view::npos) return Event::kNeedMore;
    if (head_.size() < 2 || head_[head_.size() - 2] != '\r') {
      return Fail(400, "a line of the request head ends in LF without CR");
    }
    if (head_ == "\r\n") {  // an empty line before the request is tolerated
      head_.clear();
      continue;
    }
    if (head_.ends_with("\r\n\r\n")) {
      const Event event = ParseHead(std::string_view(head_).substr(0, head_.size() - 2));
      if (event == Event::kHead) head_.clear();
      return event;
    }
  }
  return Event::kNeedMore;
}

RequestParser::Event RequestParser::ParseHead(std::string_view head) {
  bool first = true;
  while (!head.empty()) {
    const size_t end = head.find("\r\n");
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(end + 2);
    const bool ok = first ? ParseRequestLine(line) : ParseHeader(line);
    if (!ok) return Event::kError;
    first = false;
  }
  if (!CheckFraming()) return Event::kError;
  state_ = chunked_ ? State::kChunkSize : State::kBody;
  return Event::kHead;
}

bool RequestParser::ParseRequestLine(std::string_view line) {
  const auto fail = [this](int status, std::string message) {
    Fail(status, std::move(message));
    return false;
  };
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) {
    return fail(400, "the request line is not \"METHOD TARGET HTTP/1.1\"");
  }
  const std::string_view method = line.substr(0, first);
  std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (!IsToken(method) || method.size() > 32) return fail(400, "the request method is not a token");
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    const bool http = version.starts_with("HTTP/");
    return fail(http ? 505 : 400, "the protocol version is neither HTTP/1.1 nor HTTP/1.0");
  }
  http_1_0_ = version == "HTTP/1.0";
  keep_alive_ = !http_1_0_;
  const auto printable = [](char c) { return c > 0x20 && c < 0x7F; };
  if (!std::all_of(target.begin(), target.end(), printable)) {
    return fail(400, "the request target holds a space, a control or a non-ASCII character");
  }
  if (const size_t scheme = target.find("://");
      scheme != std::string_view::npos && target.front() != '/') {  // absolute form
    target.remove_prefix(scheme + 3);
    target.remove_prefix(std::min(target.find('/'), target.size()));
    if (target.empty()) target = "/";
  }
  if (target != "*" && (target.empty() || target.front() != '/')) {
    return fail(400, "the request target does not begin with '/'");
  }
  target = target.substr(0, target.find('#'));
  const size_t question = std::min(target.find('?'), target.size());
  request_.method = std::string(method);
  request_.query = std::string(target.substr(std::min(question + 1, target.size())));
  if (!NormalizePath(target.substr(0, question), &request_.path)) {
    return fail(400, "the request path holds a broken percent escape or a control character");
  }
  return true;
}

bool RequestParser::ParseHeader(std::string_view line) {
  const size_t colon = line.find(':');
  const std::string_view name = line.substr(0, std::min(colon, line.size()));
  if (colon == std::string_view::npos || !IsToken(name)) {
    Fail(400,
         "a header line has no valid name before its colon (spaces there and folded lines are "
         "not allowed)");
    return false;
  }
  const std::string_view value = Trim(line.substr(colon + 1));
  if (!std::all_of(value.begin(), value.end(), IsFieldChar)) {
    Fail(400, "a header value holds a control character");
    return false;
  }
  if (request_.headers.size() >= limits_.max_headers) {
    Fail(431, absl::StrFormat("the request has more than %d headers", limits_.max_headers));
    return false;
  }
  request_.headers.emplace_back(ToLower(name), std::string(value));
  return true;
}

bool RequestParser::CheckFraming() {
  int hosts = 0, lengths = 0, encodings = 0;
  std::string_view length, encoding, expect;
  for (const auto& [name, value] : request_.headers) {
    if (name == "host") ++hosts;
    if (name == "content-length") ++lengths, length = value;
    if (name == "transfer-encoding") ++encodings, encoding = value;
    if (name == "expect") expect = value;
    if (name == "connection") CheckConnection(value);
  }
  std::string fault;
  if (hosts > 1 || (hosts == 0 && !http_1_0_)) {
    fault = absl::StrFormat("there are %d Host headers, not one", hosts);
  } else if (encodings > 0 && lengths > 0) {
    fault = "Content-Length and Transfer-Encoding are both given";
  } else if (lengths > 1) {
    fault = "Content-Length is given more than once";
  } else if (encodings > 1 || (encodings == 1 && ToLower(encoding) != "chunked")) {
    fault = "Transfer-Encoding is not just \"chunked\"";
  } else if (encodings == 1 && http_1_0_) {
    fault = "Transfer-Encoding is not a part of HTTP/1.0";
  }
  if (!fault.empty()) {
    Fail(400, std::move(fault));
    return false;
  }
  chunked_ = encodings == 1;
  if (lengths == 1 && !CheckContentLength(length)) return false;
  if (!expect.empty()) {
    if (ToLower(expect) != "100-continue") {
      Fail(417, "the only supported Expect value is 100-continue");
      return false;
    }
    expects_continue_ = !http_1_0_;
  }
  return true;
}

bool RequestParser::CheckContentLength(std::string_view value) {
  const bool digits =
      !value.empty() && value.size() <= 19 &&
      std::all_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!digits) {
    Fail(400, "Content-Length is not a number of bytes");
    return false;
  }
  body_left_ = 0;
  for (const char c : value) body_left_ = body_left_ * 10 + static_cast<uint64_t>(c - '0');
  if (body_left_ > limits_.max_body_bytes) {
    Fail(413, absl::StrFormat("the request body of %d bytes is larger than the limit of %d bytes",
                              body_left_, limits_.max_body_bytes));
    return false;
  }
  return true;
}

void RequestParser::CheckConnection(std::string_view value) {
  const std::string lower = ToLower(value);
  for (std::string_view rest = lower; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view option = Trim(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    if (option == "close") keep_alive_ = false;
    if (option == "keep-alive" && http_1_0_) keep_alive_ = true;
  }
}

void RequestParser::Keep(std::string_view bytes) {
  if (!discard_) request_.body.append(bytes);
}

RequestParser::Event RequestParser::FeedBody(std::string_view* input) {
  const size_t take = std::min<uint64_t>(body_left_, input->size());
  Keep(input->substr(0, take));
  input->remove_prefix(take);
  body_left_ -= take;
  if (body_left_ > 0) return Event::kNeedMore;
  if (state_ == State::kChunkData) {
    state_ = State::kChunkEnd;
    return Event::kNeedMore;
  }
  state_ = State::kDone;
  return Event::kDone;
}

// Completes line_ up to its CRLF (left out). False: more is needed, or the state is kError.
bool RequestParser::TakeLine(std::string_view* input) {
  const size_t lf = input->find('\n');
  const size_t take = lf == std::string_view::npos ? input->size() : lf + 1;
  if (line_.size() + take > kMaxChunkLine) {
    Fail(400, "a line between the chunks of the body is too long");
    return false;
  }
  line_.append(input->substr(0, take));
  input->remove_prefix(take);
  if (lf == std::string_view::npos) return false;
  if (!line_.ends_with("\r\n") || line_.find('\r') != line_.size() - 2) {
    Fail(400, "a line between the chunks of the body does not end in CRLF");
    return false;
  }
  line_.resize(line_.size() - 2);
  return true;
}

RequestParser::Event RequestParser::FeedChunkSize(std::string_view* input) {
  if (!TakeLine(input)) return state_ == State::kError ? Event::kError : Event::kNeedMore;
  const size_t digits = std::min(line_.find(';'), line_.size());
  const bool extension_ok =
      std::all_of(line_.begin() + static_cast<ptrdiff_t>(digits), line_.end(), IsFieldChar);
  if (digits == 0 || digits > 15 || !extension_ok) return Fail(400, "a chunk size is not valid");
  uint64_t size = 0;
  for (size_t i = 0; i < digits; ++i) {
    const int digit = HexDigit(line_[i]);
    if (digit < 0) return Fail(400, "a chunk size is not a hexadecimal number");
    size = size * 16 + static_cast<uint64_t>(digit);
  }
  line_.clear();
  body_bytes_ += size;
  if (body_bytes_ > limits_.max_body_bytes) {
    return Fail(413, absl::StrFormat("the request body is larger than the limit of %d bytes",
                                     limits_.max_body_bytes));
  }
  body_left_ = size;
  state_ = size == 0 ? State::kTrailer : State::kChunkData;
  return Event::kNeedMore;
}

RequestParser::Event RequestParser::FeedChunkEnd(std::string_view* input) {
  if (!TakeLine(input)) return state_ == State::kError ? Event::kError : Event::kNeedMore;
  if (!line_.empty()) return Fail(400, "a chunk is longer than its size");
  state_ = State::kChunkSize;
  return Event::kNeedMore;
}

// Trailers are read and dropped: no header of ours may come after the body.
RequestParser::Event RequestParser::FeedTrailer(std::string_view* input) {
  while (!input->empty()) {
    if (!TakeLine(input)) return state_ == State::kError ? Event::kError : Event::kNeedMore;
    if (line_.empty()) {
      state_ = State::kDone;
      return Event::kDone;
    }
    trailer_bytes_ += line_.size();
    const size_t colon = line_.find(':');
    if (colon == std::string::npos || !IsToken(std::string_view(line_).substr(0, colon)) ||
        trailer_bytes_ > kMaxTrailerBytes) {
      return Fail(400, "the trailer of the body is not valid");
    }
    line_.clear();
  }
  return Event::kNeedMore;
}

}  // namespace penstock
