// tessera check: the promise of docs/numerics.md, tried on this machine.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/check_attention.h"
#include "app/common.h"
#include "app/diagnose.h"
#include "base/table.h"
#include "bench/checks.h"

namespace tessera::app {
namespace {

struct Options {
  ConfigOptions config;
  std::vector<std::string> suites;
  std::uint64_t seed = 20260908;
  std::int32_t diagnose = 0;
  bool json = false;
};

int run(Options options) {
  const bool all = options.suites.empty() || options.suites[0] == "all";
  if (all) options.suites = check_suites();
  auto config = options.config.load();
  if (!config.ok()) return report(config.status());
  Registry registry = make_registry(*config);
  if (options.diagnose > 0 && options.suites != std::vector<std::string>{"packed"})
    return report(fail(Code::invalid_argument, "--diagnose belongs to one suite: tessera check packed --diagnose {}",
                       options.diagnose));
  if (options.diagnose > 0) return diagnose_packed(*config, registry, options.diagnose, options.seed);
  auto rows = run_checks(*config, registry, {options.suites, options.seed});
  if (!rows.ok()) return report(rows.status());
  std::optional<AttentionReport> attention;
  if (all) {
    auto checked = check_attention_small(*config, registry, options.seed);
    if (!checked.ok()) return report(checked.status());
    attention = std::move(*checked);
  }
  std::int64_t compared = 0, bits = 0, failed = 0;
  Table table({"suite", "case", "rows", "differing rows", "bits", "tokens", "verdict"});
  nlohmann::json json = nlohmann::json::array();
  for (const CheckRow& row : *rows) {
    compared += row.compared;
    bits += row.differing_bits;
    failed += row.ok() ? 0 : 1;
    const std::string verdict = !row.failure.empty() ? "FAILED: " + row.failure
                                : row.ok()           ? (row.compared > 0 ? "ok" : "not run")
                                                     : "FAILED";
    table.add({row.suite, row.name, std::to_string(row.compared), std::to_string(row.differing_rows),
               std::to_string(row.differing_bits), std::to_string(row.differing_tokens),
               row.note.empty() ? verdict : verdict + " (" + row.note + ")"});
    json.push_back({{"suite", row.suite},
                    {"case", row.name},
                    {"rows", row.compared},
                    {"differing_rows", row.differing_rows},
                    {"differing_bits", row.differing_bits},
                    {"differing_tokens", row.differing_tokens},
                    {"note", row.note},
                    {"failure", row.failure}});
  }
  if (options.json)
    fmt::print("{}\n", nlohmann::json{{"seed", options.seed},
                                      {"cases", json},
                                      {"rows", compared},
                                      {"differing_bits", bits},
                                      {"failed_cases", failed},
                                      {"attention", attention ? json_of(*attention) : nlohmann::json()}}
                           .dump(2));
  else
    fmt::print("{}\nseed {}: {} cases, {} logit rows compared, {} differing bits, {} failed cases\n", table.text(),
               options.seed, rows->size(), compared, bits, failed);
  if (attention && !options.json) fmt::print("\n{}", text_of(*attention));
  return failed == 0 && compared > 0 && (!attention || attention->ok()) ? 0 : 1;
}

}  // namespace

void add_check(CLI::App& root, int& exit_code) {
  auto* command = root.add_subcommand("check", "Compare logit bits of requests alone and in every other circumstance");
  auto options = std::make_shared<Options>();
  options->config.add_to(*command);
  std::vector<std::string> names = check_suites();
  names.push_back("all");
  command
      ->add_option(
          "suites", options->suites,
          "batch, prefill, packed, paged, sampling, loops, sparse, speculative, graphs, kernels or all (default)")
      ->check(CLI::IsMember(names));
  command->add_option("--seed", options->seed, "Of prompts, orders and draws")->capture_default_str();
  command
      ->add_option("--diagnose", options->diagnose,
                   "Instead: so many seeded generations beside the reference attention, to the first difference")
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", options->json, "For programs");
  add_check_attention(*command, exit_code);
  command->callback([options, command, &exit_code] {
    if (command->get_subcommands().empty()) exit_code = run(*options);
  });
}

}  // namespace tessera::app
