// tessera config, inspect, tokenize, plugins: what the engine sees, without running a model.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/common.h"
#include "base/table.h"
#include "model/checkpoint.h"
#include "model/spec.h"
#include "text/tokenizer.h"

namespace tessera::app {
namespace {

int config_check(const std::string& file) {
  auto config = load_config(file, {}, {});
  if (!config.ok()) return report(config.status());
  fmt::print("{}: ok\n", file);
  return 0;
}

int config_show(const ConfigOptions& options) {
  auto config = options.load();
  if (!config.ok()) return report(config.status());
  for (std::string& key : config->server.api_keys) key = kHiddenKey;  // this output ends up in bug reports
  fmt::print("{}", to_yaml(*config));
  return 0;
}

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

int inspect(const std::string& folder, bool json, bool with_tensors) {
  auto spec = read_spec(folder);
  if (!spec.ok()) return report(spec.status());
  auto checkpoint = Checkpoint::open(folder);
  if (!checkpoint.ok()) return report(checkpoint.status());
  Progress progress("hashing " + folder, checkpoint->total_bytes());
  auto digest = checkpoint->digest(progress);
  progress.finish();
  if (!digest.ok()) return report(digest.status());
  nlohmann::ordered_json facts{{"family", spec->family},
                               {"parameters", spec->parameters()},
                               {"layers", spec->layers},
                               {"hidden", spec->hidden},
                               {"intermediate", spec->intermediate},
                               {"q_heads", spec->q_heads},
                               {"kv_heads", spec->kv_heads},
                               {"head_dim", spec->head_dim},
                               {"vocab", spec->vocab},
                               {"max_context", spec->max_context},
                               {"rope_theta", spec->rotary.theta},
                               {"tied_embeddings", spec->tied_embeddings},
                               {"eos", spec->eos},
                               {"tensor_bytes", checkpoint->total_bytes()},
                               {"sha256", to_hex(*digest)}};
  if (json) {
    for (const TensorInfo& tensor : checkpoint->tensors())
      facts["tensors"].push_back(
          {{"name", tensor.name}, {"dtype", sdk::dtype_name(tensor.dtype)}, {"shape", tensor.shape}});
    fmt::print("{}\n", facts.dump(2));
    return 0;
  }
  for (const auto& [key, value] : facts.items()) fmt::print("{:<16} {}\n", key, value.dump());
  if (!with_tensors) return 0;
  Table table({"tensor", "type", "shape"});
  for (const TensorInfo& tensor : checkpoint->tensors())
    table.add({tensor.name, sdk::dtype_name(tensor.dtype), shape_text(tensor.shape)});
  fmt::print("\n{}", table.text());
  return 0;
}

int tokenize(const ConfigOptions& options, const std::string& text, bool special, bool json) {
  auto config = options.load();
  if (!config.ok()) return report(config.status());
  auto tokenizer = Tokenizer::load(config->model.path / "tokenizer.json");
  if (!tokenizer.ok()) return report(tokenizer.status());
  const auto mode = special ? Tokenizer::Special::become_tokens : Tokenizer::Special::stay_text;
  const std::vector<std::int32_t> ids = tokenizer->encode(text, mode);
  if (json) {
    fmt::print("{}\n", nlohmann::json(ids).dump());
    return 0;
  }
  Table table({"id", "piece"});
  for (std::int32_t id : ids) table.add({std::to_string(id), std::string(tokenizer->piece(id))});
  fmt::print("{}{} tokens\n", table.text(), ids.size());
  return 0;
}

}  // namespace

void add_config(CLI::App& root, int& exit_code) {
  auto* command = root.add_subcommand("config", "Check a configuration file, or show the resolved configuration");
  command->require_subcommand(1);
  auto file = std::make_shared<std::string>();
  auto* check_command = command->add_subcommand("check", "Refuse a bad file with file:line:column");
  check_command->add_option("file", *file, "YAML file")->required();
  check_command->callback([file, &exit_code] { exit_code = config_check(*file); });
  auto options = std::make_shared<ConfigOptions>();
  auto* show_command = command->add_subcommand("show", "Every value after file, environment and --set");
  options->add_to(*show_command);
  show_command->callback([options, &exit_code] { exit_code = config_show(*options); });
}

void add_inspect(CLI::App& root, int& exit_code) {
  auto* command = root.add_subcommand("inspect", "Describe a model folder: geometry, tensors, SHA-256");
  auto folder = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false), tensors = std::make_shared<bool>(false);
  command->add_option("folder", *folder, "Folder with config.json and safetensors")->required();
  command->add_flag("--json", *json, "For programs");
  command->add_flag("--tensors", *tensors, "List every tensor");
  command->callback([=, &exit_code] { exit_code = inspect(*folder, *json, *tensors); });
}

void add_tokenize(CLI::App& root, int& exit_code) {
  auto* command = root.add_subcommand("tokenize", "Show the tokens of a text");
  auto options = std::make_shared<ConfigOptions>();
  auto text = std::make_shared<std::string>();
  auto special = std::make_shared<bool>(false), json = std::make_shared<bool>(false);
  options->add_to(*command);
  command->add_option("text", *text, "The text")->required();
  command->add_flag("--special", *special, "Texts of special tokens become those tokens");
  command->add_flag("--json", *json, "The ids as a JSON array");
  command->callback([=, &exit_code] { exit_code = tokenize(*options, *text, *special, *json); });
}

}  // namespace tessera::app
