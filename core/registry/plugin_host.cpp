#include "registry/plugin_host.h"

#include <charconv>
#include <vector>

#include "base/log.h"
#include "base/nearest.h"

namespace tessera {

void PluginHost::log(sdk::LogLevel level, const char* message) noexcept {
  tessera::log(level, "{}: {}", config_.name, message);
}

const PluginOption* PluginHost::find(const char* key) {
  const std::lock_guard lock(mutex_);
  asked_.insert(key);
  for (const PluginOption& option : config_.options)
    if (option.key == key) return &option;
  return nullptr;
}

Status PluginHost::refuse(const PluginOption& option, const std::string& wanted) const {
  return fail(Code::invalid_argument, "{}: option '{}' of plugin {} is '{}'; wanted {}", option.where.text(),
              option.key, config_.name, option.value, wanted);
}

Status PluginHost::refuse(const char* key, const char* wanted) noexcept {
  return sdk::guarded([&]() -> Status {
    const PluginOption* option = find(key);
    return refuse(option == nullptr ? PluginOption{key, "not set", config_.where} : *option, wanted);
  });
}

Status PluginHost::option_int(const char* key, std::int64_t fallback, std::int64_t min, std::int64_t max,
                              std::int64_t* out) noexcept {
  return sdk::guarded([&]() -> Status {
    const PluginOption* option = find(key);
    std::int64_t value = fallback;
    if (option != nullptr) {
      const char* end = option->value.data() + option->value.size();
      const auto parsed = std::from_chars(option->value.data(), end, value);
      if (parsed.ec != std::errc() || parsed.ptr != end || value < min || value > max)
        return refuse(*option, fmt::format("a whole number from {} to {}", min, max));
    }
    *out = value;
    return {};
  });
}

Status PluginHost::option_real(const char* key, double fallback, double min, double max, double* out) noexcept {
  return sdk::guarded([&]() -> Status {
    const PluginOption* option = find(key);
    double value = fallback;
    if (option != nullptr) {
      const char* end = option->value.data() + option->value.size();
      const auto parsed = std::from_chars(option->value.data(), end, value);
      if (parsed.ec != std::errc() || parsed.ptr != end || !(value >= min && value <= max))
        return refuse(*option, fmt::format("a number from {} to {}", min, max));
    }
    *out = value;
    return {};
  });
}

Status PluginHost::option_bool(const char* key, bool fallback, bool* out) noexcept {
  return sdk::guarded([&]() -> Status {
    const PluginOption* option = find(key);
    if (option != nullptr && option->value != "true" && option->value != "false")
      return refuse(*option, "true or false");
    *out = option == nullptr ? fallback : option->value == "true";
    return {};
  });
}

Status PluginHost::option_text(const char* key, const char* fallback, const char** out) noexcept {
  return sdk::guarded([&]() -> Status {
    const PluginOption* option = find(key);
    *out = option == nullptr ? fallback : option->value.c_str();
    return {};
  });
}

Status PluginHost::option_choice(const char* key, const char* fallback, const char* const* choices, std::size_t count,
                                 std::size_t* out) noexcept {
  return sdk::guarded([&]() -> Status {
    const PluginOption* option = find(key);
    const std::string value = option == nullptr ? fallback : option->value;
    const std::vector<std::string> known(choices, choices + count);
    for (std::size_t i = 0; i < count; ++i)
      if (known[i] == value) {
        *out = i;
        return {};
      }
    if (option == nullptr)
      return fail(Code::internal, "plugin {}: default '{}' of '{}' is none of its choices", config_.name, value, key);
    const std::string near = nearest(value, known);
    return refuse(*option, fmt::format("one of {}{}", fmt::join(known, ", "),
                                       near.empty() ? "" : fmt::format(" (did you mean {}?)", near)));
  });
}

Status PluginHost::all_read() const {
  const std::lock_guard lock(mutex_);
  for (const PluginOption& option : config_.options) {
    if (asked_.contains(option.key)) continue;
    const std::vector<std::string> known(asked_.begin(), asked_.end());
    const std::string near = nearest(option.key, known);
    const std::string fix = !near.empty()   ? fmt::format("did you mean '{}'?", near)
                            : known.empty() ? "it has no options; remove the key"
                                            : fmt::format("it knows {}", fmt::join(known, ", "));
    return fail(Code::invalid_argument, "{}: plugin {} has no option '{}'; {}", option.where.text(), config_.name,
                option.key, fix);
  }
  return {};
}

}  // namespace tessera
