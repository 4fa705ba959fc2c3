#include <yaml-cpp/yaml.h>

#include "config/config.h"

namespace tessera {
namespace {

/// Texts are always quoted: "8080" as a name must read back as a text.
void text(YAML::Emitter& out, const char* key, const std::string& value) {
  out << YAML::Key << key << YAML::Value << YAML::DoubleQuoted << value;
}

template <class Plain>
void plain(YAML::Emitter& out, const char* key, const Plain& value) {
  out << YAML::Key << key << YAML::Value << fmt::format("{}", value);
}

template <class Body>
void section(YAML::Emitter& out, const char* key, Body&& body) {
  out << YAML::Key << key << YAML::Value << YAML::BeginMap;
  body();
  out << YAML::EndMap;
}

void plugin(YAML::Emitter& out, const PluginConfig& config) {
  text(out, "name", config.name);
  if (!config.path.empty()) text(out, "path", config.path.string());
  if (config.options.empty()) return;
  section(out, "options", [&] {
    for (const PluginOption& option : config.options)
      out << YAML::Key << YAML::DoubleQuoted << option.key << YAML::Value << YAML::DoubleQuoted << option.value;
  });
}

template <class Texts>
void texts(YAML::Emitter& out, const char* key, const Texts& values) {
  out << YAML::Key << key << YAML::Value << YAML::Flow << YAML::BeginSeq;
  for (const auto& value : values) out << YAML::DoubleQuoted << std::filesystem::path(value).string();
  out << YAML::EndSeq;
}

}  // namespace

std::string to_yaml(const Config& config) {
  YAML::Emitter out;
  out << YAML::BeginMap;
  section(out, "model", [&] {
    text(out, "path", config.model.path.string());
    text(out, "profile", config.model.profile);
    plain(out, "max_context", config.model.max_context);
    text(out, "name", config.model.name);
  });
  section(out, "backend", [&] { plugin(out, config.backend); });
  section(out, "cache", [&] {
    if (config.cache.pages == 0)
      plain(out, "pages", "auto");
    else
      plain(out, "pages", config.cache.pages);
    plain(out, "memory_fraction", config.cache.memory_fraction);
    plain(out, "prefix_cache", config.cache.prefix_cache);
  });
  section(out, "scheduler", [&] {
    plain(out, "max_batch", config.scheduler.max_batch);
    plain(out, "step_tokens", config.scheduler.step_tokens);
    plain(out, "chunk_cap", config.scheduler.chunk_cap);
    plain(out, "max_queue", config.scheduler.max_queue);
    plain(out, "graphs", config.scheduler.graphs);
  });
  section(out, "attention", [&] { plugin(out, config.attention); });
  if (!config.sparse_decode.plugin.name.empty())
    section(out, "sparse_decode", [&] {
      plugin(out, config.sparse_decode.plugin);
      plain(out, "crossover", config.sparse_decode.crossover);
    });
  section(out, "speculation", [&] {
    text(out, "kind", config.speculation.kind);
    plain(out, "draft_tokens", config.speculation.draft_tokens);
    plain(out, "draft_loops", config.speculation.draft_loops);
    plain(out, "rounds_in_flight", config.speculation.rounds_in_flight);
    text(out, "acceptance", config.speculation.acceptance);
  });
  out << YAML::Key << "protocols" << YAML::Value << YAML::BeginSeq;
  for (const PluginConfig& protocol : config.protocols) {
    out << YAML::BeginMap;
    plugin(out, protocol);
    out << YAML::EndMap;
  }
  out << YAML::EndSeq;
  section(out, "server", [&] {
    const bool v6 = config.server.host.find(':') != std::string::npos;
    text(out, "listen", fmt::format("{}{}{}:{}", v6 ? "[" : "", config.server.host, v6 ? "]" : "", config.server.port));
    texts(out, "api_keys", config.server.api_keys);
    plain(out, "max_connections", config.server.max_connections);
    plain(out, "max_body_bytes", config.server.max_body_bytes);
    plain(out, "drain_seconds", config.server.drain_seconds);
  });
  section(out, "plugins", [&] { texts(out, "directories", config.plugin_directories); });
  section(out, "log", [&] { text(out, "level", config.log_level); });
  out << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

}  // namespace tessera
