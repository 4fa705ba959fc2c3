// tessera bench: speeds beside the roofs measured in the same run.
#include "bench/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "app/bench_attention.h"
#include "app/bench_loops.h"
#include "app/bench_sparse.h"
#include "app/common.h"
#include "base/table.h"
#include "bench/roof.h"

namespace tessera::app {
namespace {

struct Options {
  ConfigOptions config;
  std::string what;
  std::string weights = "f32";
  bool json = false;
};

int run(const Options& options) {
  auto config = options.config.load();
  if (!config.ok()) return report(config.status());
  Registry registry = make_registry(*config);
  const sdk::DType type = options.weights == "bf16" ? sdk::DType::bf16 : sdk::DType::f32;
  auto backend = open_backend(*config, registry);
  if (!backend.ok()) return report(backend.status());
  const Roof before = measure_roof(*backend->get());
  auto rows = options.what == "linear"   ? bench_linear(*config, registry, type)
              : options.what == "decode" ? bench_decode(*config, registry, type)
                                         : bench_prefill(*config, registry, type);
  if (!rows.ok()) return report(rows.status());
  // The better of before and after, so that a slow moment does not flatter the rates.
  const Roof roof = better_of(before, measure_roof(*backend->get()));
  const auto of_roof = [&roof](const BenchRow& row) {
    const double ceiling = (row.unit == "GB/s" ? roof.bytes_per_second : roof.flops) * 1e-9;
    return ceiling > 0 ? row.rate / ceiling : 0;
  };
  if (options.json) {
    nlohmann::json json{{"threads", roof.threads},
                        {"roof_gflops", roof.flops * 1e-9},
                        {"roof_gbytes", roof.bytes_per_second * 1e-9},
                        {"rows", nlohmann::json::array()}};
    for (const BenchRow& row : *rows)
      json["rows"].push_back({{"name", row.name},
                              {"median_ms", row.median_ms},
                              {"fastest_ms", row.fastest_ms},
                              {"slowest_ms", row.slowest_ms},
                              {"rate", row.rate},
                              {"unit", row.unit},
                              {"of_roof", of_roof(row)},
                              {"tokens_per_second", row.tokens_per_second}});
    fmt::print("{}\n", json.dump(2));
    return 0;
  }
  if (roof.flops > 0) fmt::print("{}\n\n", text_of(roof));
  Table table({"what", "median ms", "fastest", "slowest", "rate", "unit", "of roof", "tokens/s"});
  for (const BenchRow& row : *rows)
    table.add({row.name, fmt::format("{:.3f}", row.median_ms), fmt::format("{:.3f}", row.fastest_ms),
               fmt::format("{:.3f}", row.slowest_ms), fmt::format("{:.1f}", row.rate), row.unit,
               roof.flops > 0 ? fmt::format("{:.0f} %", of_roof(row) * 100) : "-",
               row.tokens_per_second > 0 ? fmt::format("{:.1f}", row.tokens_per_second) : "-"});
  fmt::print("{}", table.text());
  return 0;
}

}  // namespace

void add_bench(CLI::App& root, int& exit_code) {
  auto* command = root.add_subcommand("bench", "Speeds of the 113 M geometry with random weights, beside the roof");
  auto options = std::make_shared<Options>();
  options->config.add_to(*command);
  command->add_option("what", options->what, "linear, decode or prefill")
      ->check(CLI::IsMember({"linear", "decode", "prefill"}));
  command->add_option("--weights", options->weights, "f32 or bf16")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->capture_default_str();
  command->add_flag("--json", options->json, "For programs");
  add_bench_attention(*command, exit_code);
  add_bench_loops(*command, exit_code);
  add_bench_sparse(*command, exit_code);
  command->callback([options, command, &exit_code] {
    if (!command->get_subcommands().empty()) return;  // which has run
    if (options->what.empty()) throw CLI::RequiredError("linear, decode, prefill, attention, loops or sparse");
    exit_code = run(*options);
  });
}

}  // namespace tessera::app
