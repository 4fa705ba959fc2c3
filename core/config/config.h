// The resolved configuration: plain structs. Every value knows where it came from, so later refusals can say so.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tessera {

/// "configs/serve.yaml:12:3", "--set attention.name" or "TESSERA_ATTENTION__NAME".
struct Where {
  std::string source;
  int line = 0;  // from 1; 0 when the source has no lines
  int column = 0;
  std::string text() const;
};

/// One key of a plugin's own subtree. Scalars only; the plugin gives the type when it asks.
struct PluginOption {
  std::string key;
  std::string value;
  Where where;
};

struct PluginConfig {
  std::string name;
  std::filesystem::path path;  // an explicit file; empty = search by name
  std::vector<PluginOption> options;
  Where where;

  /// The option's text, or `fallback` when it is not set.
  std::string option(std::string_view key, const std::string& fallback) const;
};

struct Config {
  struct Model {
    std::filesystem::path path = "models/tessera-dense";
    std::string profile = "f32";
    std::int32_t max_context = 0;  // 0 = the model's own
    std::string name;              // what clients call it; "" = the folder's name
    Where where;
  } model;
  PluginConfig backend{.name = "cpu", .path = {}, .options = {}, .where = {}};
  struct Cache {
    std::int64_t pages = 0;         // 0 = auto: what max_batch sequences of max_context need, within memory_fraction
    double memory_fraction = 0.85;  // of the device memory that is free after the weights
    bool prefix_cache = true;
    Where where;
  } cache;
  struct Scheduler {
    std::int32_t max_batch = 16;
    std::int32_t step_tokens = 1024;
    std::int32_t chunk_cap = 0;  // prefill rows of one sequence in one step; 0 = no cap
    std::int32_t max_queue = 64;
    std::int32_t graphs = 64;  // recorded steps kept, on devices that record them; 0 = launch every step anew
    Where where;
  } scheduler;
  PluginConfig attention{.name = "attention_exact", .path = {}, .options = {}, .where = {}};  // variant is an option
  struct SparseDecode {
    PluginConfig plugin;         // no name: dense decoding
    std::int32_t crossover = 1;  // a decoded row that sees fewer positions is dense
  } sparse_decode;
  struct Speculation {
    std::string kind = "none";          // none, self (looped models), prompt_lookup
    std::int32_t draft_tokens = 3;      // candidates of a round
    std::int32_t draft_loops = 2;       // of self: loops that draft them
    std::int32_t rounds_in_flight = 1;  // 2: the device draws greedy tokens itself and the host waits for neither
    std::string acceptance = "exact";   // exact: answers are the serial ones; rejection (docs/numerics.md)
    Where where;
  } speculation;
  std::vector<PluginConfig> protocols{{.name = "openai", .path = {}, .options = {}, .where = {}}};
  struct Server {
    std::string host = "127.0.0.1";
    std::uint16_t port = 8080;
    std::vector<std::string> api_keys;
    std::int32_t max_connections = 512;
    std::int64_t max_body_bytes = 8 << 20;
    std::int32_t drain_seconds = 30;  // what running requests get after SIGTERM
  } server;
  std::vector<std::filesystem::path> plugin_directories;  // plugins.directories
  std::string log_level = "info";                         // log.level
};

/// What stands in for an API key where a configuration is shown. Refused as a key.
inline constexpr const char* kHiddenKey = "(hidden)";

/// One override, as typed: "cache.pages=4096". `source` is how an error names it.
struct Override {
  std::string assignment;
  std::string source;
};

/// Defaults, then the file (if any), then the environment, then the overrides. Relative paths in a file are relative to
/// the working directory. Errors carry file:line:column and the nearest known key.
/// Environment: TESSERA_SECTION__KEY=value (double underscore for the dot).
Result<Config> load_config(const std::optional<std::filesystem::path>& file,
                           const std::map<std::string, std::string>& environment, std::span<const Override> overrides);

/// The same for a text in memory; `source` is how errors name it.
Result<Config> parse_config(std::string_view text, const std::string& source,
                            const std::map<std::string, std::string>& environment, std::span<const Override> overrides);

/// The resolved configuration as YAML that load_config reads back to the same values.
std::string to_yaml(const Config& config);

}  // namespace tessera
