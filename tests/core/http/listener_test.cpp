#include "http/listener.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "http/connection.h"
#include "http/routes.h"

using namespace tessera;
using namespace std::chrono_literals;

namespace {

Config::Server local() {
  Config::Server config;
  config.port = 0;
  return config;
}

class Client {
 public:
  explicit Client(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  }
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void send(std::string_view text) { (void)!::send(fd_, text.data(), text.size(), MSG_NOSIGNAL); }
  /// Until `end` has been seen (then exactly up to what came with it), the peer closes, or 5 s pass.
  std::string read(std::string_view end = "\n<never>") {
    std::string text;
    char bytes[4096];
    while (text.find(end) == std::string::npos) {
      pollfd socket{fd_, POLLIN, 0};
      if (::poll(&socket, 1, 5000) <= 0) return text + "<timeout>";
      const ssize_t got = ::recv(fd_, bytes, sizeof bytes, 0);
      if (got <= 0) break;
      text.append(bytes, static_cast<std::size_t>(got));
    }
    return text;
  }

 private:
  int fd_;
};

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

struct Echo final : sdk::HttpHandler {
  void handle(sdk::HttpExchange& exchange) noexcept override {
    const std::string text = fmt::format("{} {} auth={} x={} body={}", exchange.method(), exchange.path(),
                                         exchange.authorized(), exchange.header("X-Thing"), exchange.body());
    const sdk::HttpHeader extra{"X-Extra", "1"};
    exchange.respond(200, "text/plain", text, {&extra, 1});
  }
};

struct Streamer final : sdk::HttpHandler {
  void handle(sdk::HttpExchange& exchange) noexcept override {
    exchange.begin_stream(200, "text/event-stream", {});
    exchange.write("one");
    exchange.write("");
    exchange.write("two");
  }
};

struct Waiter final : sdk::HttpHandler {
  std::atomic<bool> entered{false}, gone{false}, release{false};
  void handle(sdk::HttpExchange& exchange) noexcept override {
    entered = true;
    while (!release && !gone) {
      gone = exchange.client_gone();
      std::this_thread::sleep_for(5ms);
    }
    exchange.respond(200, "text/plain", "late", {});
  }
};

struct Silent final : sdk::HttpHandler {
  void handle(sdk::HttpExchange&) noexcept override {}
};

std::unique_ptr<Listener> opened(const Config::Server& config) {
  auto listener = Listener::open(config);
  REQUIRE_MESSAGE(listener.ok(), listener.status().message);
  return std::move(listener).value();
}

void wait_for(const std::atomic<bool>& flag) {
  for (int i = 0; i < 1000 && !flag; ++i) std::this_thread::sleep_for(5ms);
  CHECK(flag);
}

}  // namespace

TEST_CASE("an exact route is served, and the connection carries a second and a pipelined third request") {
  Echo echo;
  auto listener = opened(local());
  REQUIRE(listener->add("POST", "/echo", echo).ok());
  listener->start();
  Client client(listener->port());
  client.send("POST /echo?q=1 HTTP/1.1\r\nHost: a\r\nx-thing: yes\r\nContent-Length: 2\r\n\r\nhi");
  const std::string first = client.read("body=hi");
  CHECK(has(first, "HTTP/1.1 200 OK\r\n"));
  CHECK(has(first, "X-Extra: 1\r\n"));
  CHECK(has(first, "POST /echo auth=true x=yes body=hi"));
  const std::string one = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\ntwo";
  client.send(one + "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nConnection: close\r\n\r\nthree");
  const std::string rest = client.read();
  CHECK(has(rest, "body=two"));
  CHECK(has(rest, "body=three"));
  CHECK_FALSE(has(rest, "<timeout>"));
}

TEST_CASE("a body in chunks and one that waits for 100-continue arrive whole") {
  Echo echo;
  auto listener = opened(local());
  REQUIRE(listener->add("POST", "/echo", echo).ok());
  listener->start();
  Client client(listener->port());
  client.send("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
  CHECK(has(client.read("body=abcde"), "body=abcde"));
  client.send("POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
  CHECK(has(client.read("100 Continue\r\n\r\n"), "100 Continue"));
  client.send("wait");
  CHECK(has(client.read("body=wait"), "body=wait"));
}

TEST_CASE("an empty body completes at once") {
  Echo echo;
  auto listener = opened(local());
  REQUIRE(listener->add("GET", "/x", echo).ok());
  listener->start();
  Client client(listener->port());
  client.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
  CHECK(has(client.read("body="), "GET /x"));
}

TEST_CASE("a stream is chunked under HTTP/1.1 and raw until close under HTTP/1.0") {
  Streamer streamer;
  auto listener = opened(local());
  REQUIRE(listener->add("GET", "/s", streamer).ok());
  listener->start();
  Client client(listener->port());
  client.send("GET /s HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::string chunked = client.read("0\r\n\r\n");
  CHECK(has(chunked, "Transfer-Encoding: chunked\r\n"));
  CHECK(has(chunked, "3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"));
  Client old(listener->port());
  old.send("GET /s HTTP/1.0\r\n\r\n");
  CHECK(has(old.read(), "\r\n\r\nonetwo"));
}

TEST_CASE("paths that nobody claimed get 404, known paths with another method 405, and fallbacks win by prefix") {
  Echo echo;
  Streamer streamer;
  auto listener = opened(local());
  REQUIRE(listener->add("POST", "/echo", echo).ok());
  REQUIRE(listener->add_fallback("/a/", streamer).ok());
  REQUIRE(listener->add_fallback("/a/b/", echo).ok());
  CHECK_FALSE(listener->add("POST", "/echo", streamer).ok());
  CHECK_FALSE(listener->add_fallback("/a/", echo).ok());
  listener->start();
  const auto ask = [&](std::string_view line) {
    Client client(listener->port());
    client.send(fmt::format("{} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", line));
    return client.read();
  };
  CHECK(has(ask("GET /nothing"), "HTTP/1.1 404 Not Found"));
  const std::string wrong = ask("GET /echo");
  CHECK(has(wrong, "HTTP/1.1 405"));
  CHECK(has(wrong, "Allow: POST"));
  CHECK(has(ask("GET /a/x"), "one"));
  CHECK(has(ask("GET /a/b/c"), "GET /a/b/c"));
}

TEST_CASE("malformed requests, long headers and long bodies are refused, and the server lives on") {
  Echo echo;
  Config::Server config = local();
  config.max_body_bytes = 100;
  auto listener = opened(config);
  REQUIRE(listener->add("POST", "/echo", echo).ok());
  listener->start();
  const auto ask = [&](const std::string& text) {
    Client client(listener->port());
    client.send(text);
    return client.read();
  };
  CHECK(has(ask("nonsense\r\n\r\n"), "HTTP/1.1 400"));
  CHECK(has(ask("GET / HTTP/9.9\r\n\r\n"), "HTTP/1.1 400"));
  CHECK(has(ask("POST /echo HTTP/1.1\r\nContent-Length: x\r\n\r\n"), "HTTP/1.1 400"));
  CHECK(has(ask("GET / HTTP/1.1\r\nA: " + std::string(100000, 'a') + "\r\n\r\n"), "HTTP/1.1 431"));
  CHECK(has(ask("POST /echo HTTP/1.1\r\nContent-Length: 101\r\n\r\n" + std::string(101, 'b')), "HTTP/1.1 413"));
  CHECK(has(
      ask("POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nc8\r\n" + std::string(200, 'b') + "\r\n0\r\n\r\n"),
      "HTTP/1.1 413"));
  CHECK(has(ask("POST /echo HTTP/1.1\r\nConnection: close\r\nContent-Length: 100\r\n\r\n" + std::string(100, 'b')),
            "HTTP/1.1 200"));
}

TEST_CASE("authorization accepts either header, any configured key, and nothing near it") {
  CHECK(key_matches("beta", {"alpha", "beta"}));
  CHECK_FALSE(key_matches("bet", {"alpha", "beta"}));
  CHECK_FALSE(key_matches("betabeta", {"alpha", "beta"}));
  CHECK_FALSE(key_matches("", {"alpha", ""}));
  Echo echo;
  Config::Server config = local();
  config.api_keys = {"secret"};
  auto listener = opened(config);
  REQUIRE(listener->add("GET", "/e", echo).ok());
  listener->start();
  const auto ask = [&](std::string_view header) {
    Client client(listener->port());
    client.send(fmt::format("GET /e HTTP/1.1\r\n{}\r\nConnection: close\r\n\r\n", header));
    return client.read();
  };
  CHECK(has(ask("Authorization: Bearer secret"), "auth=true"));
  CHECK(has(ask("authorization: bearer secret"), "auth=true"));
  CHECK(has(ask("x-api-key: secret"), "auth=true"));
  CHECK(has(ask("x-api-key: secre"), "auth=false"));
  CHECK(has(ask("Authorization: Basic secret"), "auth=false"));
}

TEST_CASE("a handler learns that its client has gone") {
  Waiter waiter;
  auto listener = opened(local());
  REQUIRE(listener->add("GET", "/w", waiter).ok());
  listener->start();
  Client client(listener->port());
  client.send("GET /w HTTP/1.1\r\n\r\n");
  wait_for(waiter.entered);
  std::this_thread::sleep_for(30ms);
  CHECK_FALSE(waiter.gone);
  client.close();
  wait_for(waiter.gone);
}

TEST_CASE("a connection beyond the limit gets 503 with Retry-After, and the limit frees again") {
  Waiter waiter;
  Config::Server config = local();
  config.max_connections = 1;
  auto listener = opened(config);
  REQUIRE(listener->add("GET", "/w", waiter).ok());
  listener->start();
  Client first(listener->port());
  first.send("GET /w HTTP/1.1\r\nConnection: close\r\n\r\n");
  wait_for(waiter.entered);
  Client second(listener->port());
  const std::string refused = second.read();
  CHECK(has(refused, "HTTP/1.1 503"));
  CHECK(has(refused, "Retry-After: 1"));
  waiter.release = true;
  CHECK(has(first.read(), "late"));
  first.close();
  bool served = false;
  for (int i = 0; i < 100 && !served; ++i) {
    std::this_thread::sleep_for(20ms);
    Client third(listener->port());
    third.send("GET /w HTTP/1.1\r\nConnection: close\r\n\r\n");
    served = has(third.read(), "late");
  }
  CHECK(served);
}

TEST_CASE("stop ends idle connections at once and lets a running handler answer") {
  Waiter waiter;
  auto listener = opened(local());
  REQUIRE(listener->add("GET", "/w", waiter).ok());
  listener->start();
  Client idle(listener->port());
  Client busy(listener->port());
  busy.send("GET /w HTTP/1.1\r\n\r\n");
  wait_for(waiter.entered);
  std::thread releaser([&] {
    std::this_thread::sleep_for(100ms);
    waiter.release = true;
  });
  const auto begin = std::chrono::steady_clock::now();
  listener->stop();
  CHECK(std::chrono::steady_clock::now() - begin < 5s);
  releaser.join();
  CHECK(has(busy.read(), "late"));
  CHECK(idle.read().empty());
  listener->stop();
}

TEST_CASE("a handler that gives no answer becomes a 500") {
  Silent silent;
  auto listener = opened(local());
  REQUIRE(listener->add("GET", "/s", silent).ok());
  listener->start();
  Client client(listener->port());
  client.send("GET /s HTTP/1.1\r\n\r\n");
  CHECK(has(client.read(), "HTTP/1.1 500"));
}

TEST_CASE("a port in use and an impossible host are refused with a sentence") {
  auto listener = opened(local());
  Config::Server config = local();
  config.port = listener->port();
  const auto second = Listener::open(config);
  REQUIRE_FALSE(second.ok());
  CHECK(has(second.status().message, fmt::format("127.0.0.1:{}", config.port)));
  CHECK(has(second.status().message, "another port"));
  config.host = "not a host";
  CHECK_FALSE(Listener::open(config).ok());
}
