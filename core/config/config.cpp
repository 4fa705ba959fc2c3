#include "config/config.h"

#include <yaml-cpp/eventhandler.h>

#include <cctype>
#include <fstream>
#include <sstream>

#include "config/reader.h"

namespace tessera {
namespace {

using config_detail::Value;

constexpr std::size_t kMaxFileBytes = 1 << 20;

Status syntax_error(const Where& where, const YAML::Exception& error) {
  Where place = where;
  if (where.line != 0 && !error.mark.is_null()) place = {where.source, error.mark.line + 1, error.mark.column + 1};
  return fail(Code::invalid_argument, "{}: this is no YAML ({}); {}", place.text(), error.msg,
              where.line == 0 ? "quote the value" : "check indentation, quotes and brackets");
}

/// Parses without keeping anything.
class Ignore final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

Status apply_text(Config& config, std::string_view text, const std::string& source) {
  const Where where{source, 1, 1};
  if (text.size() > kMaxFileBytes)
    return fail(Code::invalid_argument, "{}: has {} bytes; wanted a configuration of at most {}", source, text.size(),
                kMaxFileBytes);
  try {
    // Not LoadAll: yaml-cpp 0.7 finds documents without end in a stray bracket.
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    Ignore ignore;
    if (parser.HandleNextDocument(ignore) && parser.HandleNextDocument(ignore))
      return fail(Code::invalid_argument,
                  "{}: goes on after its first YAML document; wanted one, without '---' "
                  "between",
                  where.text());
    return config_detail::apply(config, {YAML::Load(std::string(text)), "", where, where, ""});
  } catch (const YAML::Exception& error) {
    return syntax_error(where, error);
  }
}

/// One dotted path: wrapped into sections, so that files and overrides go the same way.
Status apply_path(Config& config, std::string_view path, const std::string& text, const std::string& source) {
  const Where where{source, 0, 0};
  try {
    YAML::Node node = YAML::Load(text);
    while (true) {
      const std::size_t dot = path.rfind('.');
      const std::string key(dot == std::string_view::npos ? path : path.substr(dot + 1));
      if (key.empty())
        return fail(Code::invalid_argument, "{}: a key is empty; wanted section.key=value, such as cache.pages=4096",
                    where.text());
      YAML::Node section;
      section[key] = node;
      node.reset(section);
      if (dot == std::string_view::npos) break;
      path = path.substr(0, dot);
    }
    return config_detail::apply(config, {node, "", where, where, ""});
  } catch (const YAML::Exception& error) {
    return syntax_error(where, error);
  }
}

Status apply_environment(Config& config, const std::map<std::string, std::string>& environment) {
  constexpr std::string_view kPrefix = "TESSERA_";
  for (const auto& [variable, text] : environment) {
    if (!variable.starts_with(kPrefix) || variable.find("__") == std::string::npos) continue;
    std::string path;
    for (std::size_t i = kPrefix.size(); i < variable.size(); ++i) {
      const bool separator = variable.compare(i, 2, "__") == 0;
      path += separator ? '.' : static_cast<char>(std::tolower(static_cast<unsigned char>(variable[i])));
      i += separator ? 1 : 0;
    }
    TESSERA_TRY(apply_path(config, path, text, variable));
  }
  return {};
}

Status apply_override(Config& config, const Override& override) {
  const std::size_t equals = override.assignment.find('=');
  if (equals == std::string::npos)
    return fail(Code::invalid_argument, "{}: '{}' has no '='; wanted section.key=value, such as cache.pages=4096",
                override.source, override.assignment);
  const std::string_view path = std::string_view(override.assignment).substr(0, equals);
  return apply_path(config, path, override.assignment.substr(equals + 1), override.source);
}

Status cross_check(const Config& config) {
  if (config.scheduler.step_tokens < config.scheduler.max_batch)
    return fail(
        Code::invalid_argument,
        "{}: scheduler.step_tokens is {} but scheduler.max_batch is {}; wanted step_tokens of at least max_batch, "
        "so that every running request can advance in each step",
        config.scheduler.where.text(), config.scheduler.step_tokens, config.scheduler.max_batch);
  return {};
}

Status apply_rest(Config& config, const std::map<std::string, std::string>& environment,
                  std::span<const Override> overrides) {
  TESSERA_TRY(apply_environment(config, environment));
  for (const Override& override : overrides) TESSERA_TRY(apply_override(config, override));
  return cross_check(config);
}

}  // namespace

std::string Where::text() const {
  if (source.empty()) return "built-in defaults";
  return line == 0 ? source : fmt::format("{}:{}:{}", source, line, column);
}

std::string PluginConfig::option(std::string_view key, const std::string& fallback) const {
  for (const PluginOption& one : options)
    if (one.key == key) return one.value;
  return fallback;
}

Result<Config> parse_config(std::string_view text, const std::string& source,
                            const std::map<std::string, std::string>& environment,
                            std::span<const Override> overrides) {
  Config config;
  TESSERA_TRY(apply_text(config, text, source));
  TESSERA_TRY(apply_rest(config, environment, overrides));
  return config;
}

Result<Config> load_config(const std::optional<std::filesystem::path>& file,
                           const std::map<std::string, std::string>& environment, std::span<const Override> overrides) {
  if (!file) return parse_config("", "built-in defaults", environment, overrides);
  std::error_code error;
  std::ifstream stream(*file, std::ios::binary);
  if (!stream || !std::filesystem::is_regular_file(*file, error))
    return fail(Code::not_found, "{}: cannot be read as a configuration file; check the path (configs/ has examples)",
                file->string());
  std::string text(kMaxFileBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return parse_config(text, file->string(), environment, overrides);
}

}  // namespace tessera
