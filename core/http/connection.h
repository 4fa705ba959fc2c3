// One client connection: HTTP/1.1 requests in, handler answers out, on one thread.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "http/routes.h"

namespace tessera {

struct ConnectionLimits {
  std::vector<std::string> api_keys;  // empty = everybody is authorized
  std::uint64_t max_body_bytes = 8 << 20;
  std::uint32_t max_header_bytes = 32 << 10;
  std::chrono::milliseconds idle{30000};      // silence while a request is awaited or arriving; also one stuck send
  std::chrono::milliseconds request{120000};  // a whole request, so that a trickle cannot hold a thread for ever
};

/// Serves requests until the peer closes, breaks HTTP, idles too long, or `stopping` is set. Does not close `fd`.
/// `busy` is true while a handler runs: a connection that is not busy may be woken by shutdown(fd, SHUT_RD).
void serve_connection(int fd, const ConnectionLimits& limits, const Routes& routes, const std::atomic<bool>& stopping,
                      std::atomic<bool>& busy);

/// A complete "Connection: close" answer in the listener's own JSON error shape. `headers`: whole lines with CRLF.
std::string error_response(int status, std::string_view message, std::string_view headers);

/// Ends our half and discards what the peer still sends, for at most `limit`: closing a socket with unread bytes
/// resets it, and the answer could be lost with them.
void linger_close(int fd, std::chrono::milliseconds limit);

/// Time depends on the length of `presented` only.
bool key_matches(std::string_view presented, const std::vector<std::string>& keys);

}  // namespace tessera
