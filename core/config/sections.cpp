// The table of every key: its section, its type, its range and the field it sets.
#include <algorithm>
#include <functional>

#include "base/nearest.h"
#include "config/reader.h"

namespace tessera::config_detail {
namespace {

using Set = std::function<Status(Config&, const Value&)>;

struct Key {
  std::string name;
  Set set;
  bool override_only = false;  // not in files, where server.listen says it in one place
};

struct Section {
  std::string name;
  std::vector<Key> keys;  // of a section of keys; empty if `whole` reads it
  Set whole;              // first, with the section itself
};

template <class Field>
Set integer(Field field, std::int64_t min, std::int64_t max, const char* zero = nullptr) {
  return [=](Config& config, const Value& value) -> Status {
    auto& target = std::invoke(field, config);
    if (zero != nullptr && value.node.IsScalar() && value.node.Scalar() == zero) {
      target = 0;
      return {};
    }
    auto number = read_int(value, min, max);
    if (!number.ok())
      return zero == nullptr ? number.status()
                             : refuse(value, fmt::format("{} or a whole number from {} to {}", zero, min, max));
    target = static_cast<std::remove_reference_t<decltype(target)>>(*number);
    return {};
  };
}

template <class Field, class Read>
Set with(Field field, Read read) {
  return [=](Config& config, const Value& value) -> Status {
    auto result = read(value);
    if (!result.ok()) return result.status();
    std::invoke(field, config) = *std::move(result);
    return {};
  };
}

Result<std::string> read_name(const Value& value) {
  auto text = read_text(value);
  if (!text.ok()) return text;
  if (text->empty() || text->find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != std::string::npos)
    return refuse(value, "a plugin name of a-z, 0-9 and _");
  return text;
}

Result<std::string> read_some_text(const Value& value) {
  auto text = read_text(value);
  if (text.ok() && text->empty()) return refuse(value, "a text that is not empty");
  return text;
}

Result<std::vector<std::string>> read_keys(const Value& value) {
  auto keys = read_texts(value);
  if (!keys.ok()) return keys;
  for (const std::string& key : *keys)
    if (key.empty() || key == kHiddenKey)
      return refuse(value, "keys themselves: not empty, and not what `config show` prints in their place");
  return keys;
}

Result<std::string> read_profile(const Value& value) {
  auto text = read_text(value);
  if (!text.ok()) return text;
  if (*text == "int8" || *text == "bf16")
    return fail(Code::unsupported, "{}: model.profile '{}' is not in this build yet; use f32", value.where.text(),
                *text);
  if (*text != "f32") return unknown_choice(value, {"f32"});
  return text;
}

/// Reads one of `choices`.
auto one_of(std::vector<std::string> choices) {
  return [choices = std::move(choices)](const Value& value) -> Result<std::string> {
    auto text = read_text(value);
    if (!text.ok()) return text;
    if (std::find(choices.begin(), choices.end(), *text) == choices.end()) return unknown_choice(value, choices);
    return text;
  };
}

Status set_listen(Config& config, const Value& value) {
  const auto wanted = [&] { return refuse(value, "HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080"); };
  if (!value.node.IsScalar()) return wanted();
  const std::string& text = value.node.Scalar();
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return wanted();
  std::string host = text.substr(0, colon);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string::npos)
    return wanted();
  const Value digits{YAML::Node(text.substr(colon + 1)), value.path, value.where, value.key_where, value.key};
  auto port = read_int(digits, 0, 65535);
  if (!port.ok() || host.empty() || host.find_first_of("[]") != std::string::npos) return wanted();
  config.server.host = host;
  config.server.port = static_cast<std::uint16_t>(*port);
  return {};
}

Set not_yet(const char* instead) {
  return [=](Config&, const Value& value) -> Status {
    if (is_empty(value)) return {};
    return fail(Code::unsupported, "{}: {} is not in this build yet; {}", value.key_where.text(), value.path, instead);
  };
}

void set_option(PluginConfig& plugin, PluginOption option) {
  for (PluginOption& known : plugin.options)
    if (known.key == option.key) {
      known = std::move(option);
      return;
    }
  plugin.options.push_back(std::move(option));
}

/// A key of a plugin's section that is the engine's, not the plugin's.
struct OwnKey {
  std::string key;
  std::function<Status(const Value&)> set;
};

Status set_plugin_key(PluginConfig& plugin, const Value& value, bool has_variant, const std::vector<OwnKey>& own) {
  for (const OwnKey& one : own)
    if (one.key == value.key) return one.set(value);
  const auto option = [&](const Value& one) -> Status {
    if (!one.node.IsScalar()) return refuse(one, "one value: a text, a number, true or false");
    set_option(plugin, {one.key, one.node.Scalar(), one.where});
    return {};
  };
  if (value.key == "name") {
    auto name = read_name(value);
    if (!name.ok()) return name.status();
    plugin.name = *name;
    plugin.where = value.where;
    return {};
  }
  if (value.key == "path") {
    auto path = read_text(value);
    if (!path.ok()) return path.status();
    plugin.path = *path;
    return {};
  }
  if (value.key == "options") {
    auto options = entries(value);
    if (!options.ok()) return options.status();
    for (const Value& one : *options) TESSERA_TRY(option(one));
    return {};
  }
  if (value.key == "variant" && has_variant) return option(value);
  std::vector<std::string> known{"name", "path", "options"};
  if (has_variant) known.push_back("variant");
  for (const OwnKey& one : own) known.push_back(one.key);
  return unknown_key(value, known);
}

Status set_plugin(PluginConfig& plugin, const Value& section, bool has_variant, const std::vector<OwnKey>& own = {}) {
  auto keys = entries(section);
  if (!keys.ok()) return keys.status();
  for (const Value& value : *keys)  // options and path belong to the plugin that was named before
    if (value.key == "name" && value.node.IsScalar() && value.node.Scalar() != plugin.name)
      plugin.options.clear(), plugin.path.clear();
  bool named = false;
  bool moved = false;
  for (const Value& value : *keys) {
    TESSERA_TRY(set_plugin_key(plugin, value, has_variant, own));
    named = named || value.key == "name";
    moved = moved || (value.key == "path" && !plugin.path.empty());
  }
  if (moved && !named) {  // NAME.so or NAME.<device>.so
    plugin.name = plugin.path.filename().string();
    plugin.name.resize(std::min(plugin.name.find('.'), plugin.name.size()));
    plugin.where = section.where;
  }
  return {};
}

Status set_protocols(Config& config, const Value& list) {
  auto protocols = items(list);
  if (!protocols.ok()) return refuse(list, "a list of adapters, such as [{ name: openai }]");
  std::vector<PluginConfig> result;
  for (const Value& item : *protocols) {
    PluginConfig plugin{.name = "", .path = {}, .options = {}, .where = item.where};
    TESSERA_TRY(set_plugin(plugin, item, false));
    if (plugin.name.empty()) return refuse(item, "an adapter with a name, such as { name: openai }");
    for (const PluginConfig& other : result)
      if (other.name == plugin.name)
        return fail(Code::invalid_argument, "{}: protocol '{}' is listed twice; keep one of the two",
                    plugin.where.text(), plugin.name);
    result.push_back(std::move(plugin));
  }
  if (result.empty()) return refuse(list, "at least one adapter, such as [{ name: openai }]");
  config.protocols = std::move(result);
  return {};
}

Status set_sparse_decode(Config& config, const Value& section) {
  const auto crossover = [&](const Value& value) -> Status {
    auto positions = read_int(value, 1, 1 << 24);
    if (!positions.ok()) return positions.status();
    config.sparse_decode.crossover = static_cast<std::int32_t>(*positions);
    return {};
  };
  return set_plugin(config.sparse_decode.plugin, section, false, {{"crossover", crossover}});
}

#define FIELD(member) \
  [](Config & c) -> auto& { return c.member; }

std::vector<Section> make_table() {
  constexpr std::int64_t kMillion = 1 << 20;
  const auto plugin = [](PluginConfig Config::*member, bool has_variant) -> Set {
    return [=](Config& config, const Value& value) { return set_plugin(config.*member, value, has_variant); };
  };
  const auto place = [](auto field) -> Set {
    return [=](Config& config, const Value& section) -> Status {
      field(config) = section.where;
      return {};
    };
  };
  const auto fraction = [](const Value& value) { return read_real(value, 0.01, 1.0); };
  const auto directories = [](const Value& value) -> Result<std::vector<std::filesystem::path>> {
    auto texts = read_texts(value);
    if (!texts.ok()) return texts.status();
    return std::vector<std::filesystem::path>(texts->begin(), texts->end());
  };
  return {
      {"model",
       {{"path", with(FIELD(model.path), read_some_text)},
        {"profile", with(FIELD(model.profile), read_profile)},
        {"max_context", integer(FIELD(model.max_context), 0, 16 * kMillion)},
        {"name", with(FIELD(model.name), read_text)}},
       place(FIELD(model.where))},
      {"backend", {}, plugin(&Config::backend, false)},
      {"cache",
       {{"pages", integer(FIELD(cache.pages), 1, 2147483647, "auto")},
        {"memory_fraction", with(FIELD(cache.memory_fraction), fraction)},
        {"prefix_cache", with(FIELD(cache.prefix_cache), read_bool)}},
       place(FIELD(cache.where))},
      {"scheduler",
       {{"max_batch", integer(FIELD(scheduler.max_batch), 1, 4096)},
        {"step_tokens", integer(FIELD(scheduler.step_tokens), 1, kMillion)},
        {"chunk_cap", integer(FIELD(scheduler.chunk_cap), 0, kMillion)},
        {"max_queue", integer(FIELD(scheduler.max_queue), 1, kMillion)},
        {"graphs", integer(FIELD(scheduler.graphs), 0, 4096)}},
       place(FIELD(scheduler.where))},
      {"attention", {}, plugin(&Config::attention, true)},
      {"sparse_decode", {}, set_sparse_decode},
      {"speculation",
       {{"kind", with(FIELD(speculation.kind), one_of({"none", "self", "prompt_lookup"}))},
        {"draft_tokens", integer(FIELD(speculation.draft_tokens), 1, 15)},
        {"draft_loops", integer(FIELD(speculation.draft_loops), 1, 15)},
        {"acceptance", with(FIELD(speculation.acceptance), one_of({"exact", "rejection"}))},
        {"rounds_in_flight", integer(FIELD(speculation.rounds_in_flight), 1, 2)}},
       place(FIELD(speculation.where))},
      {"protocols", {}, set_protocols},
      {"server",
       {{"listen", set_listen},
        {"host", with(FIELD(server.host), read_some_text), true},
        {"port", integer(FIELD(server.port), 0, 65535), true},
        {"api_keys", with(FIELD(server.api_keys), read_keys)},
        {"max_connections", integer(FIELD(server.max_connections), 1, 65536)},
        {"max_body_bytes", integer(FIELD(server.max_body_bytes), 1024, 1 << 30)},
        {"drain_seconds", integer(FIELD(server.drain_seconds), 0, 3600)},
        {"tls", not_yet("put a TLS proxy in front and remove the key")}},
       {}},
      {"plugins", {{"directories", with(FIELD(plugin_directories), directories)}}, {}},
      {"log", {{"level", with(FIELD(log_level), one_of({"debug", "info", "warn", "error"}))}}, {}},
  };
}
#undef FIELD

template <class Named>
const Named* find(const std::vector<Named>& table, const std::string& name) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const Named& one) { return one.name == name; });
  return found == table.end() ? nullptr : &*found;
}

Status apply_section(Config& config, const Section& section, const Value& value) {
  if (section.whole) TESSERA_TRY(section.whole(config, value));
  if (section.keys.empty()) return {};
  auto values = entries(value);
  if (!values.ok()) return values.status();
  const bool in_file = value.where.line != 0;
  for (const Value& one : *values) {
    const Key* key = find(section.keys, one.key);
    if (key != nullptr && !(in_file && key->override_only)) {
      TESSERA_TRY(key->set(config, one));
      continue;
    }
    std::vector<std::string> known;
    for (const Key& other : section.keys)
      if (!(in_file && other.override_only)) known.push_back(other.name);
    return unknown_key(one, known);
  }
  return {};
}

}  // namespace

Status apply(Config& config, const Value& root) {
  static const std::vector<Section> table = make_table();
  auto sections = entries(root);
  if (!sections.ok()) return sections.status();
  for (const Value& value : *sections) {
    if (const Section* section = find(table, value.key)) {
      TESSERA_TRY(apply_section(config, *section, value));
      continue;
    }
    std::vector<std::string> known;
    for (const Section& section : table) known.push_back(section.name);
    return unknown_key(value, known);
  }
  return {};
}

}  // namespace tessera::config_detail
