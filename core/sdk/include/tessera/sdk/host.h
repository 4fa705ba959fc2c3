// What the engine offers a plugin while it is being created and while it lives.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tessera/sdk/status.h"

namespace tessera::sdk {

enum class LogLevel : std::uint32_t { debug = 0, info = 1, warn = 2, error = 3 };

/// One Host per plugin instance; it outlives the instance. Thread-safe.
///
/// Options are the plugin's own YAML subtree. A plugin reads every key it knows inside `create`; keys nobody read are
/// refused by the host, with the nearest key that was asked for. A getter's error already names file, line and column:
/// return it unchanged.
class Host {
 public:
  virtual void log(LogLevel level, const char* message) noexcept = 0;

  virtual Status option_int(const char* key, std::int64_t fallback, std::int64_t min, std::int64_t max,
                            std::int64_t* out) noexcept = 0;
  virtual Status option_real(const char* key, double fallback, double min, double max, double* out) noexcept = 0;
  virtual Status option_bool(const char* key, bool fallback, bool* out) noexcept = 0;
  /// *out stays valid as long as the Host.
  virtual Status option_text(const char* key, const char* fallback, const char** out) noexcept = 0;
  /// The value must be one of `choices`; *out is its index. An error lists them and the nearest.
  virtual Status option_choice(const char* key, const char* fallback, const char* const* choices, std::size_t count,
                               std::size_t* out) noexcept = 0;
  /// For values whose rules are the plugin's own: the error "<place>: <key> is <value>; wanted <wanted>".
  virtual Status refuse(const char* key, const char* wanted) noexcept = 0;

 protected:
  ~Host() = default;
};

}  // namespace tessera::sdk
