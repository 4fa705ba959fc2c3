// Our own bugs abort loudly, with values.
#pragma once
#include <fmt/format.h>

#include <source_location>
#include <string_view>

namespace tessera {

[[noreturn]] void abort_with(std::string_view message, std::source_location where);

/// Carries the call site beside the format string, so that check() needs no macro.
template <class... Args>
struct CheckFormat {
  template <class Text>
  consteval CheckFormat(const Text& text, std::source_location at = std::source_location::current())  // NOLINT
      : format(text), where(at) {}
  fmt::format_string<Args...> format;
  std::source_location where;
};

/// Aborts with the message and the call site unless `condition` holds. For invariants, never for input.
template <class... Args>
void check(bool condition, CheckFormat<std::type_identity_t<Args>...> text, Args&&... args) {
  if (!condition) [[unlikely]]
    abort_with(fmt::format(text.format, std::forward<Args>(args)...), text.where);
}

}  // namespace tessera
