// tessera plugins: what can be loaded, and from where.
#include "app/plugins.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/table.h"
#include "tessera/sdk/abi.h"
#include "tessera/sdk/tensor.h"

namespace tessera::app {
namespace {

bool active(const Config& config, const PluginFile& file) {
  const auto is = [&](const PluginConfig& plugin, const char* kind) {
    return file.kind == kind && (plugin.path.empty() ? file.name == plugin.name : file.path == plugin.path);
  };
  if (is(config.backend, "backend") || is(config.attention, "attention")) return true;
  for (const PluginConfig& protocol : config.protocols)
    if (is(protocol, "protocol")) return true;
  return false;
}

int list(const ConfigOptions& options, bool json) {
  auto config = options.load();
  if (!config.ok()) return report(config.status());
  const Registry registry = make_registry(*config);
  Table table({"kind", "name", "device", "active", "file"});
  nlohmann::json rows = nlohmann::json::array();
  for (const PluginFile& file : registry.list()) {
    const bool used = active(*config, file);
    const std::string variant = used && file.kind == "attention" ? config->attention.option("variant", "auto") : "";
    table.add({file.kind, file.name, file.device, used ? (variant.empty() ? "yes" : "yes (" + variant + ")") : "",
               file.path.string() + (file.exports_plugin ? "" : "  (no plugin)")});
    rows.push_back({{"kind", file.kind},
                    {"name", file.name},
                    {"device", file.device},
                    {"active", used},
                    {"variant", variant},
                    {"path", file.path.string()},
                    {"plugin", file.exports_plugin}});
  }
  if (json)
    fmt::print("{}\n", rows.dump(2));
  else
    fmt::print("{}", table.text());
  return 0;
}

int info(const std::string& path) {
  auto opened = Registry::open(path);
  if (!opened.ok()) return report(opened.status());
  const sdk::Descriptor& d = **opened;
  fmt::print("name          {}\nversion       {}\nkind          {}\ndevice        {}\nsdk           {}.{}\n", d.name,
             d.version, sdk::kind_name(d.kind), sdk::device_name(d.device), d.sdk_major, d.sdk_minor);
  fmt::print("capabilities  {}\n", capability_names(d.traits.capabilities));
  if (d.traits.head_dim_multiple != 0)
    fmt::print("head_dim      multiples of {} up to {}\n", d.traits.head_dim_multiple, d.traits.head_dim_max);
  if (d.traits.gpu_architectures[0] != '\0') fmt::print("gpu           {}\n", d.traits.gpu_architectures);
  fmt::print("built with    __GXX_ABI_VERSION {}, __cplusplus {}, _GLIBCXX_USE_CXX11_ABI {}\n", d.build.gxx_abi,
             d.build.cplusplus, d.build.string_abi);
  return 0;
}

}  // namespace

std::string capability_names(std::uint64_t bits) {
  std::string names;
  const auto add = [&](std::uint64_t bit, const char* name) {
    if ((bits & bit) != 0) names += (names.empty() ? "" : ", ") + std::string(name);
  };
  add(sdk::kBatchInvariant, "batch_invariant");
  add(sdk::kChunkInvariant, "chunk_invariant");
  add(sdk::kPortableBits, "portable_bits");
  add(sdk::kGraphCapturable, "graph_capturable");
  add(sdk::kEmitsScores, "emits_scores");
  return names.empty() ? "none" : names;
}

void add_plugins(CLI::App& root, int& exit_code) {
  auto* command = root.add_subcommand("plugins", "List plugins without loading them, describe one file, or check it");
  command->require_subcommand(1);
  auto options = std::make_shared<ConfigOptions>();
  auto json = std::make_shared<bool>(false);
  auto* list_command = command->add_subcommand("list", "Every plugin of the search path");
  options->add_to(*list_command);
  list_command->add_flag("--json", *json, "For programs");
  list_command->callback([=, &exit_code] { exit_code = list(*options, *json); });
  auto path = std::make_shared<std::string>();
  auto* info_command = command->add_subcommand("info", "Load one file and show its descriptor");
  info_command->add_option("file", *path, "The .so file")->required();
  info_command->callback([=, &exit_code] { exit_code = info(*path); });
  add_plugins_check(*command, exit_code);
}

}  // namespace tessera::app
