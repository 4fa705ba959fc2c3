// Configurations of sparse decoding that checks, benchmarks and evaluations make from the user's.
#pragma once
#include <string>

#include "config/config.h"

namespace tessera {

/// loop_reference where the configuration names no strategy. `source` is how a refusal names the place.
inline Config with_strategy(Config config, const std::string& source) {
  PluginConfig& plugin = config.sparse_decode.plugin;
  if (plugin.name.empty()) plugin.name = "loop_reference", plugin.where = {source, 0, 0};
  return config;
}

/// The same with another retention.
inline Config with_retention(Config config, const std::string& retention, const std::string& source) {
  config = with_strategy(std::move(config), source);
  PluginConfig& plugin = config.sparse_decode.plugin;
  std::erase_if(plugin.options, [](const PluginOption& option) { return option.key == "retention"; });
  plugin.options.push_back({"retention", retention, {source, 0, 0}});
  return config;
}

/// The configured retention; 0.25 is loop_reference's default.
inline double retention_of(const Config& config) {
  return std::stod(config.sparse_decode.plugin.option("retention", "0.25"));
}

}  // namespace tessera
