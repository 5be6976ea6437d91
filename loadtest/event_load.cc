// A light load client for measuring the router: it counts server-sent events, or short requests,
// and costs far less per event than what it measures. One thread, epoll, plain sockets.
//
//   event_load PORT streams CONNECTIONS TOKENS    every connection streams one completion
//   event_load PORT requests CONNECTIONS SECONDS  every connection sends short ones, one by one
//
// Prints "events N seconds S" (from the first event to the last) or "requests N seconds S".

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace {

struct Connection {
  int fd = -1;
  char last = 0;     // of what came, to see marks that two reads share
  std::string tail;  // the last bytes that came
  bool open = true;
};

struct Load {
  std::vector<Connection> connections;
  std::vector<char> buffer = std::vector<char>(256 << 10);
  int epoll = epoll_create1(EPOLL_CLOEXEC);
};

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "event_load: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string Request(bool stream, int tokens) {
  const std::string body = std::string(R"({"prompt":[5,6,7],"ignore_eos":true,"stream":)") +
                           (stream ? "true" : "false") +
                           ",\"max_tokens\":" + std::to_string(tokens) + "}";
  return "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
         "Content-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

void SendAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (n <= 0) Die("send");
    text.remove_prefix(static_cast<size_t>(n));
  }
}

void Connect(Load& load, int port, size_t count) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  load.connections.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) Die("connect");
    epoll_event event = {.events = EPOLLIN, .data = {.u64 = i}};
    if (epoll_ctl(load.epoll, EPOLL_CTL_ADD, fd, &event) != 0) Die("epoll_ctl");
    load.connections[i].fd = fd;
  }
}

// Reads what is there; empty when the server closed.
std::string_view Read(Load& load, Connection& connection) {
  const ssize_t n = recv(connection.fd, load.buffer.data(), load.buffer.size(), 0);
  if (n < 0) Die("recv");
  const std::string_view bytes(load.buffer.data(), static_cast<size_t>(n));
  connection.tail.append(bytes.substr(bytes.size() - std::min<size_t>(bytes.size(), 16)));
  if (connection.tail.size() > 16) connection.tail.erase(0, connection.tail.size() - 16);
  return bytes;
}

// Events end in an empty line; chunk framing has none of that kind.
int64_t CountEvents(Connection& connection, std::string_view bytes) {
  int64_t count = 0;
  for (size_t at = bytes.find('\n'); at != std::string_view::npos; at = bytes.find('\n', at + 1)) {
    if ((at == 0 ? connection.last : bytes[at - 1]) == '\n') ++count;
  }
  if (!bytes.empty()) connection.last = bytes.back();
  return count;
}

template <typename OnBytes>
void Run(Load& load, double until, OnBytes on_bytes) {
  std::array<epoll_event, 256> ready;
  size_t open = load.connections.size();
  while (open > 0 && (until == 0 || Now() < until)) {
    const int n = epoll_wait(load.epoll, ready.data(), static_cast<int>(ready.size()), 1'000);
    for (int i = 0; i < n; ++i) {
      Connection& connection = load.connections[ready[static_cast<size_t>(i)].data.u64];
      const std::string_view bytes = Read(load, connection);
      if (!bytes.empty() && on_bytes(connection, bytes)) continue;
      close(connection.fd);
      --open;
    }
  }
}

void Streams(Load& load, int tokens) {
  const std::string request = Request(true, tokens);
  for (const Connection& connection : load.connections) SendAll(connection.fd, request);
  int64_t events = 0;
  double first = 0;
  double last = 0;
  Run(load, 0, [&](Connection& connection, std::string_view bytes) {
    const int64_t seen = CountEvents(connection, bytes);
    if (seen > 0) {
      last = Now();
      if (first == 0) first = last;
      events += seen;
    }
    return !connection.tail.ends_with("0\r\n\r\n");
  });
  std::printf("events %lld seconds %.3f\n", static_cast<long long>(events), last - first);
}

void Requests(Load& load, double seconds) {
  const std::string request = Request(false, 1);
  for (const Connection& connection : load.connections) SendAll(connection.fd, request);
  const double begin = Now();
  int64_t answers = 0;
  Run(load, begin + seconds, [&](Connection& connection, std::string_view) {
    if (!connection.tail.ends_with("}}}")) return true;  // the usage is the answer's end
    ++answers;
    connection.tail.clear();
    SendAll(connection.fd, request);
    return true;
  });
  std::printf("requests %lld seconds %.3f\n", static_cast<long long>(answers), Now() - begin);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: event_load PORT streams|requests CONNECTIONS TOKENS|SECONDS\n");
    return 2;
  }
  Load load;
  Connect(load, std::atoi(argv[1]), static_cast<size_t>(std::atoi(argv[3])));
  if (std::string_view(argv[2]) == "streams") {
    Streams(load, std::atoi(argv[4]));
  } else {
    Requests(load, std::atof(argv[4]));
  }
  return 0;
}
