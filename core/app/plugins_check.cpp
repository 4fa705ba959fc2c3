// tessera plugins check: the conformance kit on the command line. It starts itself again for every case.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/plugins.h"
#include "kit/kit.h"

namespace tessera::app {
namespace {

struct Options {
  ConfigOptions config;
  std::string file;
  std::vector<std::string> options;  // of the plugin, key=value
  std::uint64_t seed = 20260908;
  std::int32_t fuzz = 4;
  std::int64_t timeout = 30;
  std::vector<std::string> only;
  bool json = false;
  std::string one;  // hidden: the case to run in this process
  int report_fd = 1;
};

/// "attention_exact.cuda.so" is attention_exact, for the backend cuda.
std::pair<std::string, std::string> name_and_device(const std::filesystem::path& file) {
  const std::string stem = file.stem().string();
  const std::size_t dot = stem.rfind('.');
  if (dot == std::string::npos) return {stem, ""};
  return {stem.substr(0, dot), stem.substr(dot + 1)};
}

Result<PluginOption> parse_option(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    return fail(Code::invalid_argument, "--option is '{}'; wanted KEY=VALUE", text);
  return PluginOption{text.substr(0, equals), text.substr(equals + 1), {"--option", 0, 0}};
}

Result<Subject> make_subject(const Options& options) {
  const std::filesystem::path file = std::filesystem::absolute(options.file);
  const auto [name, device] = name_and_device(file);
  ConfigOptions config_options = options.config;
  if (config_options.device.empty() && device == "cuda") config_options.device = device;
  auto config = config_options.load();
  if (!config.ok()) return config.status();
  PluginConfig plugin{.name = name, .path = file, .options = {}, .where = {"plugins check", 0, 0}};
  for (const std::string& text : options.options) {
    auto option = parse_option(text);
    if (!option.ok()) return option.status();
    plugin.options.push_back(std::move(*option));
  }
  config->attention = plugin;
  return Subject{file, std::move(*config), std::move(plugin), options.seed, options.fuzz};
}

/// The same command line for one case.
std::vector<std::string> child_command(const Options& options) {
  std::vector<std::string> words{"/proc/self/exe", "plugins", "check", options.file};
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {name, value});
  };
  add("--config", options.config.file);
  add("--device", options.config.device);
  for (const std::string& set : options.config.sets) add("--set", set);
  for (const std::string& option : options.options) add("--option", option);
  add("--seed", std::to_string(options.seed));
  add("--fuzz", std::to_string(options.fuzz));
  return words;
}

std::string summary(const KitReport& report, const Options& options) {
  const PluginFacts& facts = report.facts;
  std::string text = facts.kind.empty() ? fmt::format("{}: not loaded", options.file)
                                        : fmt::format("{} {}: {} for {}, claims {}", facts.name, facts.version,
                                                      facts.kind, facts.device, capability_names(facts.capabilities));
  text += fmt::format("\nseed {}: {} passed, {} failed, {} skipped, {} not claimed\n", options.seed,
                      report.count(Verdict::passed), report.count(Verdict::failed), report.count(Verdict::skipped),
                      report.count(Verdict::not_claimed));
  if (!facts.kind.empty() && facts.kind != "attention")
    text += fmt::format("kind {} has library and lifecycle cases only\n", facts.kind);
  return text;
}

nlohmann::json json_of(const KitReport& report, const Options& options) {
  nlohmann::json cases = nlohmann::json::array();
  for (const CaseResult& result : report.cases)
    cases.push_back({{"name", result.one->name},
                     {"promise", result.one->promise},
                     {"verdict", verdict_name(result.finding.verdict)},
                     {"reason", result.finding.reason}});
  return {{"ok", report.ok()},
          {"file", options.file},
          {"seed", options.seed},
          {"fuzz", options.fuzz},
          {"name", report.facts.name},
          {"version", report.facts.version},
          {"kind", report.facts.kind},
          {"device", report.facts.device},
          {"claims", capability_names(report.facts.capabilities)},
          {"cases", std::move(cases)}};
}

int check(const Options& options) {
  if (auto subject = make_subject(options); !subject.ok()) return report(subject.status());  // rather once than a case
  const KitOptions kit{options.only, std::chrono::seconds(options.timeout), child_command(options)};
  auto result = check_plugin(kit, [&](const CaseResult& done) {
    if (options.json) return;
    fmt::print("{:<36} {:<12} {}\n", done.one->name, verdict_name(done.finding.verdict), done.finding.reason);
    std::fflush(stdout);
  });
  if (!result.ok()) return report(result.status());
  if (options.json)
    fmt::print("{}\n", json_of(*result, options).dump(2));
  else
    fmt::print("\n{}", summary(*result, options));
  return result->ok() ? 0 : 1;
}

int run_one(const Options& options) {
  auto subject = make_subject(options);
  if (!subject.ok()) return report(subject.status());
  const Status status = run_case(std::move(*subject), options.one, options.report_fd);
  return status.ok() ? 0 : report(status);
}

}  // namespace

void add_plugins_check(CLI::App& plugins, int& exit_code) {
  auto* command = plugins.add_subcommand("check", "The conformance kit: what a plugin promises, case by case");
  auto options = std::make_shared<Options>();
  command->add_option("file", options->file, "The .so file")->required();
  command->add_option("--config,-c", options->config.file, "YAML file: backend and plugin directories");
  command->add_option("--set,-s", options->config.sets, "Override one value: section.key=value (repeatable)");
  command->add_option("--device", options->config.device, "Backend to run on (default: the one of the file's name)");
  command->add_option("--option,-o", options->options, "Create the plugin with this: KEY=VALUE (repeatable)");
  command->add_option("--seed", options->seed, "Of all contents and random cases")->capture_default_str();
  command->add_option("--fuzz", options->fuzz, "Random cases after the fixed ones")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--timeout", options->timeout, "Seconds for each case")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--only", options->only, "Cases whose names begin so (repeatable)");
  command->add_flag("--json", options->json, "For programs");
  command->add_option("--case", options->one, "Run this one in this process, as under a debugger");
  command->add_option("--report-fd", options->report_fd)->group("");
  command->callback([options, &exit_code] { exit_code = options->one.empty() ? check(*options) : run_one(*options); });
}

}  // namespace tessera::app
