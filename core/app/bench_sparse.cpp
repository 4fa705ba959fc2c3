#include "app/bench_sparse.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/common.h"
#include "app/spread_json.h"
#include "base/table.h"
#include "bench/sparse_bench.h"
#include "model/families.h"

namespace tessera::app {
namespace {

struct Options {
  ConfigOptions config;
  SparseBenchOptions bench;
  std::string json, tune;
};

std::string range_of(const Spread& s) { return fmt::format("{:.3f} .. {:.3f}", s.low, s.high); }

std::string text_of(const SparseBench& bench) {
  std::string text = fmt::format("{} on {}, retention {}, one layer, each decoded row on pages of its own",
                                 bench.plugin, bench.device, bench.retention);
  if (bench.roof.flops > 0) text += "; " + tessera::text_of(bench.roof);
  Table table({"KV heads", "rows", "context", "launch", "dense us", "of roof", "capture us", "consume us",
               "four loops / dense", "range of it", "ideal", "mass kept", "least", "list pages a row"});
  for (const SparseBenchRow& row : bench.rows) {
    const std::string heads = std::to_string(row.kv_heads), rows = std::to_string(row.rows),
                      context = std::to_string(row.context);
    if (!row.skipped.empty()) {
      table.add({heads, rows, context, "skipped: " + row.skipped, "", "", "", "", "", "", "", "", "", ""});
      continue;
    }
    const double roof = bench.roof.bytes_per_second;
    table.add({heads, rows, context, row.replayed ? "replay" : "eager", fmt::format("{:.1f}", row.dense.median),
               roof > 0 ? fmt::format("{:.0f} %", row.dense_bytes / roof / row.dense.median * 1e8) : "-",
               fmt::format("{:.1f}", row.capture.median), fmt::format("{:.1f}", row.consume.median),
               fmt::format("{:.3f}", row.ratio.median), range_of(row.ratio), fmt::format("{:.3f}", bench.ideal()),
               fmt::format("{:.3f}", row.mass.mean), fmt::format("{:.3f}", row.mass.least),
               std::to_string(row.list_pages)});
  }
  return text + "\n\n" + table.text();
}

nlohmann::json json_of(const SparseBench& bench) {
  nlohmann::json list = nlohmann::json::array();
  for (const SparseBenchRow& row : bench.rows)
    list.push_back({{"kv_heads", row.kv_heads},
                    {"decoded_rows", row.rows},
                    {"context", row.context},
                    {"launch", row.replayed ? "replay" : "eager"},
                    {"dense_us", spread_json(row.dense)},
                    {"capture_us", spread_json(row.capture)},
                    {"consume_us", spread_json(row.consume)},
                    {"four_loop_ratio", spread_json(row.ratio)},
                    {"dense_bytes", row.dense_bytes},
                    {"retained_mass", {{"mean", row.mass.mean}, {"least", row.mass.least}}},
                    {"list_pages", row.list_pages},
                    {"skipped", row.skipped}});
  return {{"plugin", bench.plugin},
          {"device", bench.device},
          {"retention", bench.retention},
          {"ideal", bench.ideal()},
          {"roof", {{"flops", bench.roof.flops}, {"bytes_per_second", bench.roof.bytes_per_second}}},
          {"rows", std::move(list)}};
}

/// The configured model's own geometry, at powers of two up to its context.
Status aim_at_model(const Config& config, SparseBenchOptions& bench) {
  auto spec = read_spec(config.model.path);
  if (!spec.ok()) return spec.status();
  bench.geometry = {
      .q_heads = spec->q_heads, .kv_heads = spec->kv_heads, .head_dim = spec->head_dim, .layers = 1, .layer = 0};
  bench.kv_heads = {spec->kv_heads};
  const std::int32_t most = config.model.max_context > 0 ? config.model.max_context : spec->max_context;
  bench.contexts.clear();
  for (std::int32_t context = 64; context <= most; context *= 2) bench.contexts.push_back(context);
  if (bench.contexts.empty()) bench.contexts = {most};
  bench.rows = {1};
  if (config.scheduler.max_batch > 1) bench.rows.push_back(config.scheduler.max_batch);
  return {};
}

/// The resolved configuration with the crossover that was measured.
Status write_tuned(Config config, const SparseBench& bench, const std::string& path) {
  constexpr std::int32_t kNever = 1 << 24;
  const std::int32_t crossover = bench.crossover();
  config.sparse_decode.plugin.name = bench.plugin;
  config.sparse_decode.crossover = crossover > 0 ? crossover : kNever;
  fmt::print("\nsparse_decode.crossover: {}{}, written to {}\n", config.sparse_decode.crossover,
             crossover > 0 ? "" : " (sparse rows were never faster)", path);
  return write_text(path, to_yaml(config));
}

int run(Options options) {
  auto config = options.config.load();
  if (!config.ok()) return report(config.status());
  if (!options.tune.empty())
    if (const Status status = aim_at_model(*config, options.bench); !status.ok()) return report(status);
  Registry registry = make_registry(*config);
  auto bench = bench_sparse(*config, registry, options.bench);
  if (!bench.ok()) return report(bench.status());
  fmt::print("{}", text_of(*bench));
  if (!options.json.empty())
    if (const Status status = write_text(options.json, json_of(*bench).dump(2)); !status.ok()) return report(status);
  if (!options.tune.empty())
    if (const Status status = write_tuned(*config, *bench, options.tune); !status.ok()) return report(status);
  return 0;
}

}  // namespace

void add_bench_sparse(CLI::App& bench, int& exit_code) {
  auto* command =
      bench.add_subcommand("sparse", "Sparse decoding beside dense attention, Ouro-1.4B geometry, one layer");
  auto options = std::make_shared<Options>();
  options->config.add_to(*command);
  command->add_option("--contexts", options->bench.contexts, "Positions of each row, separated by commas")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--kv-heads", options->bench.kv_heads, "Of 16 query heads, separated by commas")
      ->delimiter(',')
      ->check(CLI::IsMember({1, 2, 4, 8, 16}))
      ->capture_default_str();
  command->add_option("--rows", options->bench.rows, "Rows decoded at once, separated by commas")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--rounds", options->bench.rounds, "Samples of each")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--json", options->json, "Write the results to this file");
  command->add_option(
      "--tune", options->tune,
      "Instead: the configured model's geometry, 1 and scheduler.max_batch rows; write the configuration "
      "with the measured sparse_decode.crossover to this file");
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace tessera::app
