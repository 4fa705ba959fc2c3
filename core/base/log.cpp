#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>

#include "base/check.h"

namespace tessera {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::warn: return spdlog::level::warn;
    case LogLevel::error: return spdlog::level::err;
  }
  return spdlog::level::err;
}

spdlog::logger& logger() {
  static const auto instance = [] {
    auto made = spdlog::stderr_color_mt("tessera");
    made->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%-5l%$ %v");
    return made;
  }();
  return *instance;
}

}  // namespace

void set_log_level(LogLevel lowest) { logger().set_level(to_spdlog(lowest)); }

void log_text(LogLevel level, std::string_view text) { logger().log(to_spdlog(level), "{}", text); }

void abort_with(std::string_view message, CallSite where) {
  fmt::print(stderr, "tessera: internal error: {} ({}:{}, {})\n", message, where.file, where.line, where.function);
  std::abort();
}

}  // namespace tessera
