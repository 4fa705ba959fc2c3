// The shared HTTP listener as adapters see it. The engine owns sockets and threads; adapters translate.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tessera/sdk/status.h"

namespace tessera::sdk {

struct HttpHeader {
  std::string_view name;
  std::string_view value;
};

/// One request and its answer, on a thread of its own; a handler may block. Exactly one of `respond` and
/// `begin_stream` is called, once. No call throws; after the client has gone writes return false and do nothing.
class HttpExchange {
 public:
  virtual std::string_view method() const noexcept = 0;
  virtual std::string_view path() const noexcept = 0;                         // without the query
  virtual std::string_view header(std::string_view name) const noexcept = 0;  // case-insensitive; "" if absent
  virtual std::string_view body() const noexcept = 0;
  /// True when no API key is configured or the request carries one (Authorization: Bearer, or x-api-key).
  virtual bool authorized() const noexcept = 0;

  virtual void respond(int status, std::string_view content_type, std::string_view body,
                       std::span<const HttpHeader> headers) noexcept = 0;
  /// Sends status and headers now; the body follows by `write` (chunked) and ends when the handler returns.
  virtual bool begin_stream(int status, std::string_view content_type,
                            std::span<const HttpHeader> headers) noexcept = 0;
  virtual bool write(std::string_view bytes) noexcept = 0;
  /// True once the peer has closed or reset the connection. Cheap: meant to be asked a few times a second.
  virtual bool client_gone() noexcept = 0;

 protected:
  ~HttpExchange() = default;
};

class HttpHandler {
 public:
  virtual void handle(HttpExchange& exchange) noexcept = 0;

 protected:
  ~HttpHandler() = default;
};

/// Path errors by protocol: a path nobody claimed is answered by the adapter whose prefix it has, so that 404 and 405
/// have that protocol's own shape.
class Router {
 public:
  /// [control] Exact path. The handler must live until the adapter's `stop` returns. Refuses a path already claimed.
  virtual Status add(const char* method, const char* path, HttpHandler& handler) noexcept = 0;
  /// [control] Answers everything under `prefix` that no exact path matched; `exchange` is the request as it came.
  virtual Status add_fallback(const char* prefix, HttpHandler& handler) noexcept = 0;

 protected:
  ~Router() = default;
};

}  // namespace tessera::sdk
