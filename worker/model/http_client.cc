#include "worker/model/http_client.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <memory>
#include <vector>

#include "common/base/status.h"
#include "worker/model/socket_stream.h"

namespace penstock {
namespace {

namespace http = boost::beast::http;
using Parser = http::response_parser<http::buffer_body>;

constexpr size_t kReadBytes = size_t{64} << 10;
constexpr uint32_t kHeaderLimit = 64 << 10;

absl::Status ParseError(const Url& url, const boost::system::error_code& error) {
  if (error == http::error::partial_message || error == http::error::end_of_stream) {
    return Unavailable("connection broke while reading from %s:%s", url.host, url.port);
  }
  return Unavailable("%s:%s sends no proper HTTP: %s", url.host, url.port, error.message());
}

HttpHead HeadOf(const Parser& parser) {
  HttpHead head{.status = static_cast<int>(parser.get().result_int())};
  for (const auto& field : parser.get()) {
    std::string name(field.name_string());
    for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    head.headers[name] = std::string(field.value());
  }
  return head;
}

// Feeds a response from the stream through Beast's parser.
class ResponseReader {
 public:
  ResponseReader(const HttpRequest& request, SocketStream& stream)
      : request_(request), stream_(stream), piece_(kReadBytes) {
    parser_.header_limit(kHeaderLimit);
    parser_.body_limit(boost::none);
    parser_.skip(request.method == "HEAD");
  }

  absl::Status Run(const HttpHandler& handler) {
    while (!parser_.is_header_done()) RETURN_IF_ERROR(Step());
    RETURN_IF_ERROR(handler.on_head(HeadOf(parser_)));
    if (handler.on_body == nullptr) return absl::OkStatus();
    while (!parser_.is_done()) {
      parser_.get().body().data = piece_.data();
      parser_.get().body().size = piece_.size();
      const absl::Status step = Step();
      const size_t got = piece_.size() - parser_.get().body().size;
      if (got > 0) RETURN_IF_ERROR(handler.on_body(std::string_view(piece_.data(), got)));
      RETURN_IF_ERROR(step);
    }
    return absl::OkStatus();
  }

 private:
  // Parses what has arrived; when that is not enough, waits for more.
  absl::Status Step() {
    boost::system::error_code error;
    if (!arrived_.empty()) {
      const size_t used = parser_.put(boost::asio::buffer(arrived_), error);
      arrived_.erase(0, used);
      if (error == http::error::need_buffer) return absl::OkStatus();
      if (!error) {
        if (used > 0) return absl::OkStatus();
      } else if (error != http::error::need_more) {
        return ParseError(request_.url, error);
      }
    }
    const size_t before = arrived_.size();
    arrived_.resize(before + kReadBytes);
    const auto got = stream_.Receive(arrived_.data() + before, kReadBytes);
    arrived_.resize(before + (got.ok() ? *got : 0));
    RETURN_IF_ERROR(got.status());
    if (*got > 0) return absl::OkStatus();
    parser_.put_eof(error);
    return error || !parser_.is_done()
               ? ParseError(request_.url, error ? error : http::error::partial_message)
               : absl::OkStatus();
  }

  const HttpRequest& request_;
  SocketStream& stream_;
  Parser parser_;
  std::string arrived_;
  std::vector<char> piece_;
};

std::string RequestText(const HttpRequest& request) {
  std::string text = absl::StrFormat(
      "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: penstock\r\nConnection: close\r\n", request.method,
      request.url.target, request.url.Origin().substr(request.url.tls ? 8 : 7));
  for (const auto& [name, value] : request.headers) {
    text += absl::StrFormat("%s: %s\r\n", name, value);
  }
  return text + "\r\n";
}

bool IsPort(std::string_view text) {
  return !text.empty() && text.size() <= 5 &&
         text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

absl::StatusOr<Url> Url::Parse(std::string_view text) {
  const std::string_view whole = text;
  Url url;
  if (text.starts_with("https://")) {
    text.remove_prefix(8);
  } else if (text.starts_with("http://")) {
    text.remove_prefix(7);
    url.tls = false;
  } else {
    return InvalidArgument("'%s' is no http or https URL", whole);
  }
  const size_t slash = text.find_first_of("/?#");
  std::string_view authority = text.substr(0, slash);
  url.target = slash == std::string_view::npos ? "/" : std::string(text.substr(slash));
  if (const size_t fragment = url.target.find('#'); fragment != std::string::npos) {
    url.target.resize(fragment);
  }
  if (!url.target.starts_with('/')) url.target.insert(0, "/");
  url.port = url.tls ? "443" : "80";
  const size_t bracket = authority.starts_with('[') ? authority.find(']') : 0;
  const size_t colon = bracket == std::string_view::npos ? bracket : authority.find(':', bracket);
  if (colon != std::string_view::npos) {
    url.port = std::string(authority.substr(colon + 1));
    authority = authority.substr(0, colon);
  }
  if (authority.starts_with('[') && authority.ends_with(']')) {
    authority = authority.substr(1, authority.size() - 2);
  }
  url.host = std::string(authority);
  if (url.host.empty() || !IsPort(url.port) ||
      whole.find_first_of(" \r\n\t@") != std::string_view::npos) {
    return InvalidArgument("'%s' is no usable URL", whole);
  }
  return url;
}

absl::StatusOr<Url> Url::Resolve(std::string_view location) const {
  if (location.starts_with("//")) {
    return Parse(absl::StrFormat("%s%s", tls ? "https:" : "http:", location));
  }
  if (!location.starts_with('/')) return Parse(location);
  return Parse(Origin() + std::string(location));
}

std::string Url::Origin() const {
  const bool bracket = host.find(':') != std::string::npos;
  std::string text = absl::StrFormat("%s%s%s%s", tls ? "https://" : "http://", bracket ? "[" : "",
                                     host, bracket ? "]" : "");
  if (port != (tls ? "443" : "80")) text += ":" + port;
  return text;
}

std::string Url::Text() const { return Origin() + target.substr(0, target.find('?')); }

std::string HttpHead::Header(const std::string& lower_case_name) const {
  const auto it = headers.find(lower_case_name);
  return it == headers.end() ? "" : it->second;
}

std::optional<int64_t> HttpHead::ContentLength() const {
  const std::string text = Header("content-length");
  if (text.empty() || text.size() > 18 ||
      text.find_first_not_of("0123456789") != std::string::npos) {
    return std::nullopt;
  }
  return std::stoll(text);
}

absl::Status HttpFetch(const HttpRequest& request, const HttpHandler& handler) {
  ASSIGN_OR_RETURN(const std::unique_ptr<SocketStream> stream,
                   SocketStream::Connect(request.url.host, request.url.port, request.url.tls,
                                         request.idle_timeout));
  RETURN_IF_ERROR(stream->Send(RequestText(request)));
  ResponseReader reader(request, *stream);
  return reader.Run(handler);
}

}  // namespace penstock
