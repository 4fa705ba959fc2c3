// Logging to stderr through spdlog, which stays inside log.cpp. Thread-safe.
#pragma once
#include <fmt/format.h>

#include <string_view>

#include "tessera/sdk/host.h"

namespace tessera {

using sdk::LogLevel;

void set_log_level(LogLevel lowest);
void log_text(LogLevel level, std::string_view text);

template <class... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  log_text(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tessera
