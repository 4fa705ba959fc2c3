#include "app/bench_attention.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/spread_json.h"
#include "base/table.h"

namespace tessera::app {
namespace {

struct Options {
  ConfigOptions config;
  AttentionBenchOptions bench;
  std::string json, html;
};

std::string range_of(const Spread& spread) { return fmt::format("{:.2f} .. {:.2f}", spread.low, spread.high); }

std::string text_of(const AttentionBench& bench) {
  const AttentionGeometry& g = bench.geometry;
  std::string text = fmt::format("{} on {}, one layer of {} query and {} KV heads of {}, f32", bench.plugin,
                                 bench.device, g.q_heads, g.kv_heads, g.head_dim);
  if (bench.roof.flops > 0) text += "; " + tessera::text_of(bench.roof);
  Table table({"shape", "variant", "launch", "median us", "range us", "times baseline", "range of it", "GFLOP/s",
               "GB/s", "of roof"});
  for (const AttentionBenchRow& row : bench.rows) {
    if (!row.skipped.empty()) table.add({row.shape, "skipped: " + row.skipped, "", "", "", "", "", "", "", ""});
    for (const AttentionTiming& t : row.timings) {
      const double seconds = t.microseconds.median * 1e-6;
      table.add({row.shape, t.variant, t.replayed ? "replay" : "eager", fmt::format("{:.2f}", t.microseconds.median),
                 range_of(t.microseconds), fmt::format("{:.2f}", t.ratio.median), range_of(t.ratio),
                 fmt::format("{:.1f}", row.flops / seconds * 1e-9), fmt::format("{:.1f}", row.bytes / seconds * 1e-9),
                 t.of_roof > 0 ? fmt::format("{:.0f} %", t.of_roof * 100) : "-"});
    }
  }
  text += "\n\n" + table.text();
  Table kernels({"shape", "variant", "kernel", "threads", "registers", "shared KiB", "blocks", "occupancy"});
  bool some = false;
  for (const AttentionBenchRow& row : bench.rows)
    for (const AttentionTiming& t : row.timings)
      for (const sdk::KernelFacts& k : t.kernels) {
        some = true;
        kernels.add({row.shape, t.variant, k.name, fmt::format("{}", k.threads), fmt::format("{}", k.registers),
                     fmt::format("{:.1f}", static_cast<double>(k.shared_bytes) / 1024), fmt::format("{}", k.blocks),
                     fmt::format("{:.0f} %", k.occupancy * 100)});
      }
  return some ? text + "\nblocks and occupancy are of a multiprocessor\n" + kernels.text() : text;
}

nlohmann::json kernels_json(const std::vector<sdk::KernelFacts>& kernels) {
  nlohmann::json list = nlohmann::json::array();
  for (const sdk::KernelFacts& k : kernels)
    list.push_back({{"name", k.name},
                    {"threads", k.threads},
                    {"registers", k.registers},
                    {"shared_bytes", k.shared_bytes},
                    {"blocks", k.blocks},
                    {"occupancy", k.occupancy}});
  return list;
}

nlohmann::json json_of(const AttentionBench& bench) {
  nlohmann::json rows = nlohmann::json::array();
  for (const AttentionBenchRow& row : bench.rows) {
    nlohmann::json timings = nlohmann::json::array();
    for (const AttentionTiming& t : row.timings)
      timings.push_back({{"variant", t.variant},
                         {"launch", t.replayed ? "replay" : "eager"},
                         {"runs", t.runs},
                         {"microseconds", spread_json(t.microseconds)},
                         {"ratio", spread_json(t.ratio)},
                         {"of_roof", t.of_roof},
                         {"kernels", kernels_json(t.kernels)}});
    rows.push_back({{"shape", row.shape},
                    {"rows", row.rows},
                    {"pairs", row.pairs},
                    {"flops", row.flops},
                    {"bytes", row.bytes},
                    {"skipped", row.skipped},
                    {"timings", std::move(timings)}});
  }
  const AttentionGeometry& g = bench.geometry;
  return {{"plugin", bench.plugin},
          {"device", bench.device},
          {"geometry", {{"q_heads", g.q_heads}, {"kv_heads", g.kv_heads}, {"head_dim", g.head_dim}}},
          {"roof",
           {{"threads", bench.roof.threads},
            {"flops", bench.roof.flops},
            {"bytes_per_second", bench.roof.bytes_per_second}}},
          {"rows", std::move(rows)}};
}

int run(const Options& options) {
  auto config = options.config.load();
  if (!config.ok()) return report(config.status());
  Registry registry = make_registry(*config);
  auto bench = bench_attention(*config, registry, options.bench);
  if (!bench.ok()) return report(bench.status());
  fmt::print("{}", text_of(*bench));
  if (!options.json.empty())
    if (const Status status = write_text(options.json, json_of(*bench).dump(2)); !status.ok()) return report(status);
  if (!options.html.empty())
    if (const Status status = write_text(options.html, html_of(*bench)); !status.ok()) return report(status);
  return 0;
}

}  // namespace

void add_bench_attention(CLI::App& bench, int& exit_code) {
  auto* command = bench.add_subcommand("attention", "Attention variants in alternating rounds, one layer");
  auto options = std::make_shared<Options>();
  options->config.add_to(*command);
  command
      ->add_option("--variants", options->bench.variants,
                   "Separated by commas, the first is the baseline (default: reference, exact-q4-k64, auto)")
      ->delimiter(',');
  command->add_option("--shapes", options->bench.shapes, "Only shapes whose names contain one of these")
      ->delimiter(',');
  command->add_option("--rounds", options->bench.rounds, "Samples of each variant")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--prefill", options->bench.prefill, "Also whole prompts of 2,048 to 32,768 (long on a CPU)");
  command->add_option("--json", options->json, "Write the results to this file");
  command->add_option("--html", options->html, "Write a page with bars to this file");
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace tessera::app
