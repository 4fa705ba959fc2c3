// Results inside the core: sdk::Status, and a value-or-Status for calls that return something.
#pragma once
#include <fmt/format.h>

#include <optional>
#include <utility>

#include "tessera/sdk/status.h"

namespace tessera {

using sdk::Code;
using sdk::Status;

template <class... Args>
Status fail(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return sdk::fail(code, fmt::format(format, std::forward<Args>(args)...));
}

/// Either a value or the reason there is none. `value()` of a failed Result aborts.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return *std::move(value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace tessera

/// Returns early with a failed Status.
#define TESSERA_TRY(expression)                                                                       \
  do {                                                                                                \
    if (::tessera::Status tessera_status = (expression); !tessera_status.ok()) return tessera_status; \
  } while (false)
