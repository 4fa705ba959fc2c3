#include "http/listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <list>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/log.h"
#include "http/connection.h"
#include "http/routes.h"

namespace tessera {
namespace {

/// An owned file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    reset();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  int get() const { return fd_; }
  void reset() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

std::string error_text(int number) { return std::generic_category().message(number); }

Result<Descriptor> bind_to(const Config::Server& config) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(config.port);
  if (const int error = ::getaddrinfo(config.host.c_str(), port.c_str(), &hints, &found); error != 0)
    return fail(Code::invalid_argument, "server.host '{}' is not an address of this machine ({}); try 127.0.0.1",
                config.host, ::gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, ::freeaddrinfo);
  int reason = 0;
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    Descriptor socket(::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    if (socket.get() >= 0 && ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        ::bind(socket.get(), address->ai_addr, address->ai_addrlen) == 0 && ::listen(socket.get(), 1024) == 0)
      return socket;
    reason = errno;
  }
  const char* fix = reason == EADDRINUSE ? "; stop the other server or choose another port (server.port, --port)"
                    : reason == EACCES   ? "; choose a port above 1023 (server.port, --port)"
                                         : "";
  return fail(Code::unavailable, "cannot listen on {}:{}: {}{}", config.host, config.port, error_text(reason), fix);
}

std::uint16_t bound_port(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

void set_timeouts(int fd, std::chrono::milliseconds limit) {
  const timeval time{limit.count() / 1000, (limit.count() % 1000) * 1000};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

struct Listener::Impl {
  struct Connection {
    Descriptor socket;
    std::atomic<bool> busy{false};
    bool done = false;  // the thread has closed the socket and is about to end
    std::thread thread;
  };

  void accept_loop();
  void admit(Descriptor socket);
  void reap();

  Descriptor socket;
  Descriptor wake;  // an eventfd: written once, by stop
  std::uint16_t port = 0;
  std::size_t max_connections = 0;
  ConnectionLimits limits;
  Routes routes;
  std::atomic<bool> stopping{false};
  std::thread acceptor;
  std::mutex mutex;  // connections and everything in them but `busy`
  std::list<Connection> connections;
};

void Listener::Impl::accept_loop() {
  while (!stopping) {
    pollfd waits[2] = {{socket.get(), POLLIN, 0}, {wake.get(), POLLIN, 0}};
    if (::poll(waits, 2, 1000) < 0 && errno != EINTR) break;
    reap();
    if ((waits[0].revents & POLLIN) == 0 || stopping) continue;
    Descriptor client(::accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (client.get() >= 0) {
      admit(std::move(client));
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      log(LogLevel::warn, "cannot accept a connection: {}", error_text(errno));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the connection stays ready: do not spin on it
    }
  }
}

void Listener::Impl::admit(Descriptor client) {
  set_timeouts(client.get(), limits.idle);
  const std::unique_lock lock(mutex);
  const auto full = [&](std::string_view message) {
    const std::string answer = error_response(503, message, "Retry-After: 1\r\n");
    [[maybe_unused]] const auto sent = ::send(client.get(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    linger_close(client.get(), std::chrono::milliseconds(20));  // short: this is the accepting thread
  };
  if (connections.size() >= max_connections) return full("too many connections (server.max_connections); try again");
  Connection& connection = connections.emplace_back();
  connection.socket = std::move(client);
  try {
    connection.thread = std::thread([this, &connection] {
      try {
        serve_connection(connection.socket.get(), limits, routes, stopping, connection.busy);
      } catch (const std::exception& error) {
        log(LogLevel::warn, "a connection ended: {}", error.what());
      }
      const std::lock_guard closing(mutex);  // stop() must never shut down a number that was given to another socket
      connection.socket.reset();
      connection.done = true;
    });
  } catch (const std::system_error&) {
    client = std::move(connection.socket);
    connections.pop_back();
    full("no thread is left for this connection; try again");
  }
}

void Listener::Impl::reap() {
  std::list<Connection> ended;
  {
    const std::lock_guard lock(mutex);
    for (auto it = connections.begin(); it != connections.end();) {
      const auto next = std::next(it);
      if (it->done) ended.splice(ended.end(), connections, it);
      it = next;
    }
  }
  for (Connection& connection : ended) connection.thread.join();
}

Listener::Listener(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Listener::~Listener() { stop(); }

Result<std::unique_ptr<Listener>> Listener::open(const Config::Server& config) {
  std::signal(SIGPIPE, SIG_IGN);
  auto impl = std::make_unique<Impl>();
  auto socket = bind_to(config);
  if (!socket.ok()) return socket.status();
  impl->socket = std::move(*socket);
  impl->wake = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (impl->wake.get() < 0) return fail(Code::internal, "cannot make an eventfd: {}", error_text(errno));
  impl->port = bound_port(impl->socket.get());
  impl->max_connections = static_cast<std::size_t>(config.max_connections);
  impl->limits.api_keys = config.api_keys;
  impl->limits.max_body_bytes = static_cast<std::uint64_t>(config.max_body_bytes);
  return std::unique_ptr<Listener>(new Listener(std::move(impl)));
}

Status Listener::add(const char* method, const char* path, sdk::HttpHandler& handler) noexcept {
  return sdk::guarded([&] { return impl_->routes.add(method, path, handler); });
}

Status Listener::add_fallback(const char* prefix, sdk::HttpHandler& handler) noexcept {
  return sdk::guarded([&] { return impl_->routes.add_fallback(prefix, handler); });
}

std::uint16_t Listener::port() const { return impl_->port; }

void Listener::start() {
  if (!impl_->acceptor.joinable() && !impl_->stopping)
    impl_->acceptor = std::thread([impl = impl_.get()] { impl->accept_loop(); });
}

void Listener::stop() {
  impl_->stopping = true;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(impl_->wake.get(), &one, sizeof one);
  if (impl_->acceptor.joinable()) impl_->acceptor.join();
  impl_->socket.reset();
  {
    // Reading only: a request that was just parsed can still be answered. A busy connection sees `stopping` itself.
    const std::lock_guard lock(impl_->mutex);
    for (Impl::Connection& connection : impl_->connections)
      if (!connection.done && !connection.busy) ::shutdown(connection.socket.get(), SHUT_RD);
  }
  for (Impl::Connection& connection : impl_->connections) connection.thread.join();
  impl_->connections.clear();
}

}  // namespace tessera
