#include "app/common.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>

extern char** environ;

namespace tessera::app {
namespace {

std::map<std::string, std::string> environment() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (text.starts_with("TESSERA_") && equals != std::string::npos)
      variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return variables;
}

}  // namespace

void ConfigOptions::add_to(CLI::App& command) {
  command.add_option("--config,-c", file, "YAML file (default: built-in values)");
  command.add_option("--set,-s", sets, "Override one value: section.key=value (repeatable)");
  command.add_option("--model,-m", model, "Model folder; the same as --set model.path=DIR");
  command.add_option("--device", device, "Backend to run on, cpu or cuda; the same as --set backend.name=NAME");
}

Result<Config> ConfigOptions::load(const std::vector<Override>& extra) const {
  std::vector<Override> overrides;
  if (!model.empty()) overrides.push_back({"model.path=" + model, "--model"});
  if (!device.empty()) overrides.push_back({"backend.name=" + device, "--device"});
  for (const std::string& assignment : sets) overrides.push_back({assignment, "--set"});  // options of that backend too
  overrides.insert(overrides.end(), extra.begin(), extra.end());
  const auto path = file.empty() ? std::nullopt : std::optional<std::filesystem::path>(file);
  return load_config(path, environment(), overrides);
}

Registry make_registry(const Config& config) { return Registry(Registry::search_path(config)); }

int report(const Status& status) {
  fmt::print(stderr, "tessera: {}\n", status.message);
  return 1;
}

Status write_text(const std::string& path, const std::string& text) {
  std::ofstream out(path);
  out << text << '\n';
  out.close();
  return out ? Status{} : fail(Code::not_found, "{}: cannot be written", path);
}

}  // namespace tessera::app
