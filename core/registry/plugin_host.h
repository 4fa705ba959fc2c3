// The Host of one plugin instance: its options with their places in the YAML, and the log.
#pragma once
#include <mutex>
#include <set>
#include <string>

#include "base/status.h"
#include "config/config.h"
#include "tessera/sdk/host.h"

namespace tessera {

class PluginHost final : public sdk::Host {
 public:
  explicit PluginHost(PluginConfig config) : config_(std::move(config)) {}
  virtual ~PluginHost() = default;

  void log(sdk::LogLevel level, const char* message) noexcept override;
  Status option_int(const char* key, std::int64_t fallback, std::int64_t min, std::int64_t max,
                    std::int64_t* out) noexcept override;
  Status option_real(const char* key, double fallback, double min, double max, double* out) noexcept override;
  Status option_bool(const char* key, bool fallback, bool* out) noexcept override;
  Status option_text(const char* key, const char* fallback, const char** out) noexcept override;
  Status option_choice(const char* key, const char* fallback, const char* const* choices, std::size_t count,
                       std::size_t* out) noexcept override;

  Status refuse(const char* key, const char* wanted) noexcept override;

  /// Refuses the first option that no getter asked for, naming the nearest one that was.
  Status all_read() const;

 private:
  /// Null when the YAML does not have it. Remembers that the plugin knows the key.
  const PluginOption* find(const char* key);
  Status refuse(const PluginOption& option, const std::string& wanted) const;

  PluginConfig config_;
  mutable std::mutex mutex_;
  std::set<std::string> asked_;
};

}  // namespace tessera
