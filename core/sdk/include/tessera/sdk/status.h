// The result of every call across the plugin line: a code and one sentence, trivially copyable.
#pragma once
#include <cstdint>
#include <cstdio>
#include <exception>
#include <new>
#include <string_view>

namespace tessera::sdk {

enum class Code : std::uint32_t {
  ok = 0,
  invalid_argument = 1,  // the caller's mistake; the message says what was wanted
  unsupported = 2,       // a legal wish that this build or plugin cannot fulfil
  not_found = 3,
  resource_exhausted = 4,  // a queue or a pool is full; trying again later can help
  unavailable = 5,         // not ready, or draining
  cancelled = 6,
  internal = 7,  // our own bug, or a failing device
};

/// A POD: no allocation crosses the plugin line. `message` is NUL-terminated UTF-8, empty when ok.
struct [[nodiscard]] Status {
  static constexpr std::size_t kMessageBytes = 508;
  Code code = Code::ok;
  char message[kMessageBytes];

  Status() noexcept { message[0] = '\0'; }
  bool ok() const noexcept { return code == Code::ok; }
};
static_assert(sizeof(Status) == 512);

/// A failed Status; text longer than the buffer is cut at a UTF-8 boundary.
inline Status fail(Code code, std::string_view text) noexcept {
  Status status;
  status.code = code;
  std::size_t size = text.size() < Status::kMessageBytes ? text.size() : Status::kMessageBytes - 1;
  while (size < text.size() && size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) --size;
  for (std::size_t i = 0; i < size; ++i) status.message[i] = text[i];
  status.message[size] = '\0';
  return status;
}

/// Runs `body` (returning Status) and maps any exception to a Status: the body of every noexcept virtual.
template <class Body>
Status guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return fail(Code::resource_exhausted, "out of host memory");
  } catch (const std::exception& error) {
    return fail(Code::internal, error.what());
  } catch (...) {
    return fail(Code::internal, "unknown exception");
  }
}

}  // namespace tessera::sdk
