// Our own bugs abort loudly, with values.
#pragma once
#include <fmt/format.h>

#include <string_view>

namespace tessera {

/// std::source_location by the compilers' own builtins: clang 14, which builds the fuzz targets, lacks the former.
struct CallSite {
  const char* file;
  int line;
  const char* function;
};

[[noreturn]] void abort_with(std::string_view message, CallSite where);

/// Carries the call site beside the format string, so that check() needs no macro.
template <class... Args>
struct CheckFormat {
  template <class Text>
  consteval CheckFormat(const Text& text, const char* file = __builtin_FILE(), int line = __builtin_LINE(),  // NOLINT
                        const char* function = __builtin_FUNCTION())
      : format(text), where{file, line, function} {}
  fmt::format_string<Args...> format;
  CallSite where;
};

/// Aborts with the message and the call site unless `condition` holds. For invariants, never for input.
template <class... Args>
void check(bool condition, CheckFormat<std::type_identity_t<Args>...> text, Args&&... args) {
  if (!condition) [[unlikely]]
    abort_with(fmt::format(text.format, std::forward<Args>(args)...), text.where);
}

}  // namespace tessera
