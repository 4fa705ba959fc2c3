#include "app/bench_loops.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/bench_burst.h"
#include "app/common.h"
#include "app/spread_json.h"
#include "base/table.h"
#include "bench/loop_bench.h"

namespace tessera::app {
namespace {

struct Options {
  ConfigOptions config;
  LoopBenchOptions bench;
  std::vector<std::string> shapes;
  std::vector<std::string> bursts;
  BurstOptions burst;
  std::string json;
};

std::string mode_of(const LoopBenchRow& row) {
  return std::string(row.sparse ? "sparse" : "dense") + (row.speculative ? ", speculative" : "") +
         (row.in_flight ? ", in flight" : "") + (row.graphs ? ", graphs" : "");
}

double roof_ms(const LoopBench& bench, const LoopBenchRow& row) {
  return bench.roof.bytes_per_second > 0 ? row.bytes / bench.roof.bytes_per_second * 1e3 : 0;
}

std::string text_of(const LoopBench& bench) {
  std::string text = fmt::format("{} on {}, retention {}; a round is taken to give {} tokens", bench.plugin,
                                 bench.device, bench.retention, bench.tokens_per_round);
  if (bench.roof.flops > 0) text += "; " + tessera::text_of(bench.roof);
  Table table({"sequences", "context", "mode", "ms a token or round", "range", "roof ms", "of roof", "tokens/s",
               "times dense"});
  double dense = 1;
  for (const LoopBenchRow& row : bench.rows) {
    if (!row.sparse && !row.speculative) dense = row.tokens_per_second;
    const double roof = roof_ms(bench, row);
    table.add({std::to_string(row.shape.sequences), std::to_string(row.shape.context), mode_of(row),
               fmt::format("{:.2f}", row.milliseconds.median),
               fmt::format("{:.2f} .. {:.2f}", row.milliseconds.low, row.milliseconds.high),
               fmt::format("{:.2f}", roof), fmt::format("{:.0f} %", roof / row.milliseconds.median * 100),
               fmt::format("{:.1f}", row.tokens_per_second), fmt::format("{:.2f}", row.tokens_per_second / dense)});
  }
  return text + "\n\n" + table.text();
}

nlohmann::json json_of(const LoopBench& bench) {
  nlohmann::json rows = nlohmann::json::array();
  for (const LoopBenchRow& row : bench.rows)
    rows.push_back({{"sequences", row.shape.sequences},
                    {"context", row.shape.context},
                    {"mode", mode_of(row)},
                    {"milliseconds", spread_json(row.milliseconds)},
                    {"graphs", row.graphs},
                    {"bytes", row.bytes},
                    {"roof_milliseconds", roof_ms(bench, row)},
                    {"tokens_per_second", row.tokens_per_second}});
  return {{"plugin", bench.plugin},
          {"device", bench.device},
          {"retention", bench.retention},
          {"tokens_per_round", bench.tokens_per_round},
          {"roof", {{"flops", bench.roof.flops}, {"bytes_per_second", bench.roof.bytes_per_second}}},
          {"rows", std::move(rows)}};
}

/// "2x32768": two numbers, whatever they count.
template <class Shape>
Result<std::vector<Shape>> parse_shapes(const std::vector<std::string>& texts, const char* wanted) {
  std::vector<Shape> shapes;
  for (const std::string& text : texts) {
    int count = 0, length = 0;
    char end = 0;
    if (std::sscanf(text.c_str(), "%dx%d%c", &count, &length, &end) != 2 || count < 1 || count > 1024 || length < 1 ||
        length > 1 << 20)
      return fail(Code::invalid_argument, "'{}' is no shape; wanted {}", text, wanted);
    shapes.push_back({count, length});
  }
  return shapes;
}

int run_bursts(const Config& config, Options options) {
  auto shapes = parse_shapes<BurstShape>(options.bursts, "--burst REQUESTSxPROMPT, such as 64x256");
  if (!shapes.ok()) return report(shapes.status());
  options.burst.shapes = *shapes;
  options.burst.geometry = options.bench.geometry;
  options.burst.draft_tokens = options.bench.draft_tokens, options.burst.draft_loops = options.bench.draft_loops;
  options.burst.rounds = options.bench.rounds;
  return run_burst(config, options.burst, options.json);
}

int run(Options options) {
  auto config = options.config.load();
  if (!config.ok()) return report(config.status());
  if (!options.bursts.empty()) return run_bursts(*config, options);
  if (!options.shapes.empty()) {
    auto shapes = parse_shapes<LoopShape>(options.shapes, "--shapes SEQUENCESxCONTEXT, such as 2x32768");
    if (!shapes.ok()) return report(shapes.status());
    options.bench.shapes = *shapes;
  }
  Registry registry = make_registry(*config);
  auto bench = bench_loops(*config, registry, options.bench);
  if (!bench.ok()) return report(bench.status());
  fmt::print("{}", text_of(*bench));
  if (options.json.empty()) return 0;
  const Status status = write_text(options.json, json_of(*bench).dump(2));
  return status.ok() ? 0 : report(status);
}

}  // namespace

void add_bench_loops(CLI::App& bench, int& exit_code) {
  auto* command = bench.add_subcommand(
      "loops", "Tokens a second of a looped model (Ouro-1.4B, random bf16 weights): dense, sparse, speculative");
  auto options = std::make_shared<Options>();
  options->config.add_to(*command);
  LoopBenchOptions& b = options->bench;
  command->add_option("--shapes", options->shapes, "SEQUENCESxCONTEXT, separated by commas (2x32768,4x16384,8x1024)")
      ->delimiter(',');
  command
      ->add_option("--burst", options->bursts,
                   "REQUESTSxPROMPT, separated by commas (64x256): instead, that many requests at once, with their "
                   "waits and memory")
      ->delimiter(',');
  command->add_option("--burst-retention", options->burst.retentions, "Of a burst, beside dense decoding (1,0.1)")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--burst-answer", options->burst.answer, "Tokens of each answer of a burst")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--layers", b.geometry.layers, "Of the model")->check(CLI::Range(1, 96))->capture_default_str();
  command->add_option("--heads", b.geometry.heads, "Of 128; the model is as wide as all of them")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--vocab", b.geometry.vocab, "Of the model")
      ->check(CLI::Range(64, 1 << 20))
      ->capture_default_str();
  command->add_option("--draft-tokens", b.draft_tokens, "Candidates of a round")
      ->check(CLI::Range(1, 15))
      ->capture_default_str();
  command->add_option("--draft-loops", b.draft_loops, "Loops that draft")
      ->check(CLI::Range(1, 3))
      ->capture_default_str();
  command
      ->add_option("--tokens-per-round", b.tokens_per_round,
                   "What a round is taken to give: random weights confirm next to nothing")
      ->check(CLI::Range(1.0, 16.0))
      ->capture_default_str();
  command->add_option("--rounds", b.rounds, "Samples, or bursts, of each")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--json", options->json, "Write the results to this file");
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace tessera::app
