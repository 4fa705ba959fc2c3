#include "app/check_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/table.h"
#include "bench/attention_golden.h"

namespace tessera::app {
namespace {

struct Options {
  ConfigOptions config;
  AttentionCheckOptions check;
  std::string golden, write_golden, json;
};

std::string count_of(const Tally& tally) {
  return tally.failed == 0 ? std::to_string(tally.done) : fmt::format("{} ({} failed)", tally.done, tally.failed);
}

std::string verdict_of(const VariantReport& variant) {
  if (!variant.ok()) return "FAILED: " + variant.first_failure;
  if (!variant.first_failure.empty()) return "ok, not claimed: " + variant.first_failure;
  return "ok";
}

nlohmann::json tally_json(const Tally& tally) { return {{"done", tally.done}, {"failed", tally.failed}}; }

nlohmann::json variant_json(const VariantReport& variant) {
  return {{"name", variant.name},
          {"exact", variant.exact},
          {"ok", variant.ok()},
          {"tensors", tally_json(variant.tensors)},
          {"poison", tally_json(variant.poison)},
          {"composition", tally_json(variant.composition)},
          {"order", tally_json(variant.order)},
          {"pages", tally_json(variant.pages)},
          {"chunks", tally_json(variant.chunks)},
          {"refusals", tally_json(variant.refusals)},
          {"floats", variant.floats},
          {"differing_floats", variant.differing_floats},
          {"differing_bits", variant.differing_bits},
          {"largest_error", variant.largest_error},
          {"worst_case", variant.worst_case},
          {"stray_writes", variant.stray_writes},
          {"unwritten", variant.unwritten},
          {"first_failure", variant.first_failure}};
}

/// Says how the hashes compare; false when any differ, or when nothing could be compared.
Result<bool> check_golden(const AttentionReport& report, const std::string& path) {
  auto result = compare_golden(report, path);
  if (!result.ok()) return result.status();
  fmt::print(stderr, "{} of device {}: {} cases compared, {} differ{}{}\n", path, result->device, result->compared,
             result->differing.size(), result->differing.empty() ? "" : ": ", fmt::join(result->differing, ", "));
  if (result->absent > 0) fmt::print(stderr, "{} cases of this run are not in it\n", result->absent);
  return result->differing.empty() && result->compared > 0;
}

int run(const Options& options) {
  auto config = options.config.load();
  if (!config.ok()) return report(config.status());
  Registry registry = make_registry(*config);
  auto result = check_attention(*config, registry, options.check);
  if (!result.ok()) return report(result.status());
  bool ok = result->ok();
  if (options.json == "-")
    fmt::print("{}\n", json_of(*result).dump(2));
  else
    fmt::print("{}", text_of(*result));
  if (!options.json.empty() && options.json != "-")
    if (const Status status = write_text(options.json, json_of(*result).dump(2)); !status.ok()) return report(status);
  if (!options.write_golden.empty())
    if (const Status status = write_golden(*result, options.write_golden); !status.ok()) return report(status);
  if (!options.golden.empty()) {
    auto same = check_golden(*result, options.golden);
    if (!same.ok()) return report(same.status());
    ok = ok && *same;
  }
  return ok ? 0 : 1;
}

}  // namespace

std::string text_of(const AttentionReport& report) {
  Table table({"variant", "owes", "tensors", "poison", "alone", "order", "pages", "chunks", "refused", "floats differ",
               "bits differ", "largest error", "verdict"});
  std::int64_t bits = 0, exact = 0, invariance = 0;
  for (const VariantReport& v : report.variants) {
    table.add({v.name, v.exact ? "bits" : "2e-5", count_of(v.tensors), count_of(v.poison), count_of(v.composition),
               count_of(v.order), count_of(v.pages), count_of(v.chunks), count_of(v.refusals),
               std::to_string(v.differing_floats), std::to_string(v.differing_bits),
               v.worst_case.empty() ? "0" : fmt::format("{:.2e} in {}", v.largest_error, v.worst_case), verdict_of(v)});
    bits += v.exact ? v.differing_bits : 0;
    exact += v.exact ? 1 : 0;
    invariance += v.invariance_checks();
  }
  std::string text = table.text() + "\n";
  for (const std::string& failure : report.failures) text += "FAILED: " + failure + "\n";
  text += fmt::format(
      "reference against f64: {} rows, largest error {:.2e}; control: exchanging two keys changed {} "
      "bits, {}\n",
      report.oracle.done, report.oracle_largest, report.control_bits,
      report.control_bits > 0 ? "as it must" : "which is too few");
  text += fmt::format(
      "seed {}: {} on {}, {} cases, {} tensor comparisons, {} poison, {} invariance checks, {} "
      "differing bits in {} exact variants\n",
      report.seed, report.plugin, report.device, report.cases, report.total(&VariantReport::tensors),
      report.total(&VariantReport::poison), invariance, bits, exact);
  return text;
}

nlohmann::json json_of(const AttentionReport& report) {
  nlohmann::json variants = nlohmann::json::array();
  for (const VariantReport& variant : report.variants) variants.push_back(variant_json(variant));
  return {{"ok", report.ok()},
          {"plugin", report.plugin},
          {"device", report.device},
          {"seed", report.seed},
          {"fuzz", report.fuzz},
          {"cases", report.cases},
          {"oracle", tally_json(report.oracle)},
          {"oracle_largest_error", report.oracle_largest},
          {"control_differing_bits", report.control_bits},
          {"failures", report.failures},
          {"variants", std::move(variants)},
          {"hashes", report.hashes}};
}

Result<AttentionReport> check_attention_small(const Config& config, Registry& registry, std::uint64_t seed) {
  AttentionCheckOptions options{.seed = seed, .fuzz = 4, .variants = {}};
  const auto& given = config.attention.options;
  const auto chosen =
      std::find_if(given.begin(), given.end(), [](const PluginOption& option) { return option.key == "variant"; });
  if (chosen != given.end()) {
    options.variants = {chosen->value};
  } else {
    auto known = attention_variants(config, registry);
    if (!known.ok()) return known.status();
    options.variants = {known->front()};
  }
  return check_attention(config, registry, options);
}

void add_check_attention(CLI::App& check, int& exit_code) {
  auto* command = check.add_subcommand("attention", "Every variant of the attention plugin against the reference");
  auto options = std::make_shared<Options>();
  options->config.add_to(*command);
  command->add_option("--fuzz", options->check.fuzz, "Random cases after the fixed ones")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--seed", options->check.seed, "Of all contents and random cases")->capture_default_str();
  command->add_option("--variant", options->check.variants, "Only these, separated by commas (default: all)")
      ->delimiter(',');
  command
      ->add_option("--most-pairs", options->check.most_pairs,
                   "Leave out cases of more (row, key) pairs than this, for tools that make a run slow")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--golden,--cross-device", options->golden,
                      "Compare the reference's output hashes with this file, from here or from another device");
  command->add_option("--write-golden", options->write_golden, "Write the reference's output hashes to this file");
  command->add_option("--json", options->json, "For programs, to stdout or to a file")
      ->expected(0, 1)
      ->default_str("-");
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace tessera::app
