// What the subcommands share.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "config/config.h"
#include "registry/registry.h"

namespace tessera::app {

/// Options of every command that loads a configuration.
struct ConfigOptions {
  std::string file;
  std::vector<std::string> sets;
  std::string model;
  std::string device;

  /// --config, --set, --model, --device
  void add_to(CLI::App& command);
  /// Extra overrides come after --set.
  Result<Config> load(const std::vector<Override>& extra = {}) const;
};

Registry make_registry(const Config& config);

/// Prints "tessera: <message>" to stderr; the exit status of a failed command.
int report(const Status& status);

/// Each adds its subcommand; its callback stores the exit status in `exit_code`.
void add_serve(CLI::App& root, int& exit_code);
void add_run(CLI::App& root, int& exit_code);
void add_plugins(CLI::App& root, int& exit_code);
void add_config(CLI::App& root, int& exit_code);
void add_inspect(CLI::App& root, int& exit_code);
void add_tokenize(CLI::App& root, int& exit_code);
void add_logits(CLI::App& root, int& exit_code);
void add_eval(CLI::App& root, int& exit_code);
void add_check(CLI::App& root, int& exit_code);
void add_bench(CLI::App& root, int& exit_code);

/// Writes a file of `text` and a line's end.
Status write_text(const std::string& path, const std::string& text);

}  // namespace tessera::app
