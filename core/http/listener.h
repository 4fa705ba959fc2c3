// The HTTP listener that all protocol adapters share: sockets and threads live here, translation does not.
#pragma once
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "config/config.h"
#include "tessera/sdk/http.h"

namespace tessera {

/// One thread per connection, up to server.max_connections; a connection beyond them is answered 503 and closed.
///   open -> add, add_fallback -> start -> stop
class Listener final : public sdk::Router {
 public:
  /// Binds and listens; nothing is accepted before `start`. Port 0 takes a free one. Refuses a port in use.
  /// Also makes the process ignore SIGPIPE.
  static Result<std::unique_ptr<Listener>> open(const Config::Server& config);
  ~Listener();  // stops
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  Status add(const char* method, const char* path, sdk::HttpHandler& handler) noexcept override;
  Status add_fallback(const char* prefix, sdk::HttpHandler& handler) noexcept override;

  std::uint16_t port() const;

  /// [control] Begins accepting, on a thread of its own.
  void start();
  /// [control] Stops accepting, ends idle connections, waits for running handlers. Idempotent; no restart.
  void stop();

 private:
  struct Impl;
  explicit Listener(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
