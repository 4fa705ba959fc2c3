// The only file that includes Beast, for its request parser. Socket calls are plain ones: Asio's synchronous calls wait
// without limit after SO_RCVTIMEO has struck.
#include "http/connection.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cerrno>
#include <optional>

namespace tessera {
namespace {

namespace http = boost::beast::http;
using Clock = std::chrono::steady_clock;
using Parser = http::request_parser<http::string_body>;

std::string_view view(boost::beast::string_view text) { return {text.data(), text.size()}; }

std::string status_line(int status) {
  const auto reason = http::obsolete_reason(static_cast<http::status>(status));
  return fmt::format("HTTP/1.1 {} {}\r\n", status, view(reason));
}

bool send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;  // also EAGAIN: SO_SNDTIMEO struck
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

class Exchange final : public sdk::HttpExchange {
 public:
  Exchange(int fd, const http::request<http::string_body>& request, const ConnectionLimits& limits, bool keep_alive)
      : fd_(fd), request_(request), limits_(limits), keep_alive_(keep_alive) {
    path_ = view(request.target());
    path_ = path_.substr(0, path_.find('?'));
  }

  std::string_view method() const noexcept override { return view(request_.method_string()); }
  std::string_view path() const noexcept override { return path_; }
  std::string_view header(std::string_view name) const noexcept override {
    return view(request_[boost::beast::string_view(name.data(), name.size())]);
  }
  std::string_view body() const noexcept override { return request_.body(); }

  bool authorized() const noexcept override {
    if (limits_.api_keys.empty()) return true;
    std::string_view bearer = header("authorization");
    constexpr std::string_view kScheme = "bearer ";
    if (bearer.size() > kScheme.size() &&
        std::equal(kScheme.begin(), kScheme.end(), bearer.begin(), [](char a, char b) { return a == (b | 0x20); })) {
      bearer.remove_prefix(kScheme.size());
      if (key_matches(bearer, limits_.api_keys)) return true;
    }
    return key_matches(header("x-api-key"), limits_.api_keys);
  }

  void respond(int status, std::string_view content_type, std::string_view body,
               std::span<const sdk::HttpHeader> headers) noexcept override {
    if (answered_) return;
    answered_ = true;
    guard([&] {
      std::string out = head(status, content_type, headers);
      out += fmt::format("Content-Length: {}\r\n\r\n", body.size());
      if (method() != "HEAD") out += body;
      return send_all(fd_, out);
    });
  }

  bool begin_stream(int status, std::string_view content_type,
                    std::span<const sdk::HttpHeader> headers) noexcept override {
    if (answered_) return false;
    answered_ = true;
    streaming_ = true;
    chunked_ = request_.version() >= 11;
    if (!chunked_) keep_alive_ = false;  // HTTP/1.0: the end of the connection is the end of the body
    return guard([&] {
      std::string out = head(status, content_type, headers);
      out += chunked_ ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n";
      return send_all(fd_, out);
    });
  }

  bool write(std::string_view bytes) noexcept override {
    if (!streaming_) return false;
    if (bytes.empty() || method() == "HEAD") return !broken_;  // an empty chunk would end the body
    return guard([&] {
      if (!chunked_) return send_all(fd_, bytes);
      chunk_ = fmt::format("{:x}\r\n", bytes.size());
      chunk_.append(bytes).append("\r\n");
      return send_all(fd_, chunk_);
    });
  }

  bool client_gone() noexcept override {
    if (broken_) return true;
    pollfd socket{fd_, POLLRDHUP, 0};
    if (::poll(&socket, 1, 0) > 0 && (socket.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0) broken_ = true;
    return broken_;
  }

  /// After the handler: ends the body. False when the connection cannot carry another request.
  bool finish() noexcept {
    if (!answered_) respond_json_500();
    if (streaming_ && chunked_ && method() != "HEAD") guard([&] { return send_all(fd_, "0\r\n\r\n"); });
    return keep_alive_ && !broken_;
  }

 private:
  void respond_json_500() noexcept {
    answered_ = true;
    keep_alive_ = false;
    guard([&] { return send_all(fd_, error_response(500, "the handler gave no answer", "")); });
  }

  std::string head(int status, std::string_view content_type, std::span<const sdk::HttpHeader> headers) const {
    std::string out = status_line(status);
    out += fmt::format("Server: tessera\r\nContent-Type: {}\r\n", content_type);
    for (const sdk::HttpHeader& header : headers) out += fmt::format("{}: {}\r\n", header.name, header.value);
    out += keep_alive_ ? "Connection: keep-alive\r\n" : "Connection: close\r\n";
    return out;
  }

  template <class Body>
  bool guard(Body&& body) noexcept {
    if (broken_) return false;
    try {
      broken_ = !body();
    } catch (...) {  // out of memory: the answer is incomplete, so the connection must end
      broken_ = true;
    }
    return !broken_;
  }

  int fd_;
  const http::request<http::string_body>& request_;
  const ConnectionLimits& limits_;
  bool keep_alive_;
  std::string_view path_;
  std::string chunk_;
  bool answered_ = false;
  bool streaming_ = false;
  bool chunked_ = false;
  bool broken_ = false;
};

/// More bytes into `buffer`, or false: closed, broken or too slow.
bool receive(int fd, boost::beast::flat_buffer& buffer, Clock::time_point deadline, std::chrono::milliseconds idle) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    const auto wait = std::min(left, idle);
    if (wait.count() <= 0) return false;
    pollfd socket{fd, POLLIN, 0};
    const int ready = ::poll(&socket, 1, static_cast<int>(wait.count()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const auto space = buffer.prepare(16 << 10);
    const ssize_t got = ::recv(fd, space.data(), space.size(), 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return false;
    buffer.commit(static_cast<std::size_t>(got));
    return true;
  }
}

/// The answer to a request that broke HTTP or a limit.
std::string refusal(const boost::system::error_code& error, const ConnectionLimits& limits) {
  if (error == http::error::body_limit)
    return error_response(
        413, fmt::format("the request body is larger than {} bytes (server.max_body_bytes)", limits.max_body_bytes),
        "");
  if (error == http::error::header_limit)
    return error_response(431, fmt::format("the request headers are larger than {} bytes", limits.max_header_bytes),
                          "");
  return error_response(400, fmt::format("malformed HTTP request: {}", error.message()), "");
}

enum class Read { request, closed, refused };

Read read_request(int fd, Parser& parser, boost::beast::flat_buffer& buffer, const ConnectionLimits& limits) {
  parser.header_limit(limits.max_header_bytes);
  parser.body_limit(limits.max_body_bytes);
  auto deadline = Clock::now() + limits.idle;  // for the first byte
  bool started = false, continued = false;
  while (!parser.is_done()) {
    if (buffer.size() > 0) {
      if (!started) deadline = Clock::now() + limits.request;
      started = true;
      boost::system::error_code error;
      const std::size_t used = parser.put(buffer.data(), error);
      buffer.consume(used);
      if (parser.is_header_done() && !continued) {
        continued = true;
        parser.eager(true);  // from here on: the body
        const auto expect = parser.get()[http::field::expect];
        if (!error && boost::beast::iequals(expect, "100-continue") && !parser.is_done() &&
            !send_all(fd, "HTTP/1.1 100 Continue\r\n\r\n"))
          return Read::closed;
        if (!error) continue;
      }
      if (error && error != http::error::need_more) {
        send_all(fd, refusal(error, limits));
        return Read::refused;
      }
      if (parser.is_done()) break;
      if (!error && used > 0) continue;
    }
    if (!receive(fd, buffer, deadline, limits.idle)) {
      if (!started || Clock::now() < deadline) return Read::closed;
      send_all(fd, error_response(408, "the request did not arrive in time", ""));
      return Read::refused;
    }
  }
  return Read::request;
}

}  // namespace

void serve_connection(int fd, const ConnectionLimits& limits, const Routes& routes, const std::atomic<bool>& stopping,
                      std::atomic<bool>& busy) {
  boost::beast::flat_buffer buffer;  // may hold the start of a pipelined request
  while (!stopping) {
    Parser parser;
    const Read read = read_request(fd, parser, buffer, limits);
    if (read == Read::refused) linger_close(fd, std::chrono::milliseconds(1000));
    if (read != Read::request) return;
    busy = true;
    const auto request = parser.release();
    Exchange exchange(fd, request, limits, request.keep_alive() && !stopping);
    const Routes::Match match = routes.find(exchange.method(), exchange.path());
    if (match.handler != nullptr) {
      match.handler->handle(exchange);
    } else {
      const bool known = !match.allow.empty();
      const std::string body =
          fmt::format(R"({{"error":{{"message":"{}","type":"invalid_request_error","param":null,"code":null}}}})",
                      known ? "this path does not take this method" : "there is nothing at this path");
      const sdk::HttpHeader allow{"Allow", match.allow};
      exchange.respond(known ? 405 : 404, "application/json", body, std::span(&allow, known ? 1 : 0));
    }
    const bool again = exchange.finish();
    busy = false;
    if (!again) break;
  }
  linger_close(fd, std::chrono::milliseconds(200));
}

std::string error_response(int status, std::string_view message, std::string_view headers) {
  const char* type = status >= 500 ? "server_error" : "invalid_request_error";
  const std::string body =
      fmt::format(R"({{"error":{{"message":"{}","type":"{}","param":null,"code":null}}}})", message, type);
  return fmt::format(
      "{}Server: tessera\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}"
      "Connection: close\r\n\r\n{}",
      status_line(status), body.size(), headers, body);
}

void linger_close(int fd, std::chrono::milliseconds limit) {
  ::shutdown(fd, SHUT_WR);
  const auto deadline = Clock::now() + limit;
  char discarded[4096];
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return;
    pollfd socket{fd, POLLIN, 0};
    if (::poll(&socket, 1, static_cast<int>(left)) <= 0) return;
    if (::recv(fd, discarded, sizeof discarded, MSG_DONTWAIT) <= 0) return;
  }
}

bool key_matches(std::string_view presented, const std::vector<std::string>& keys) {
  bool found = false;
  for (const std::string& key : keys) {
    unsigned difference = presented.size() == key.size() ? 0 : 1;
    for (std::size_t i = 0; i < presented.size() && !key.empty(); ++i)
      difference |= static_cast<unsigned char>(presented[i] ^ key[i % key.size()]);
    found |= difference == 0 && !key.empty();
  }
  return found;
}

}  // namespace tessera
