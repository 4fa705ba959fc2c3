#include "app/bench_burst.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "app/common.h"
#include "base/table.h"

namespace tessera::app {
namespace {

std::string mib(std::int64_t bytes) { return fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 20)); }

std::string text_of(const BurstBench& bench, const BurstOptions& options) {
  std::string text = fmt::format("{} on {}, greedy, {} tokens an answer; memory in MiB, waits in ms\n\n", bench.plugin,
                                 bench.device, options.answer);
  Table table({"burst", "retention", "mode", "tokens/s", "first token p50", "p95", "most", "p95 / dense", "loaded",
               "warm-up", "grown", "slots used", "left", "pages left", "preempted"});
  std::map<std::int32_t, double> dense;  // p95, by the rounds in flight
  for (const BurstRow& row : bench.rows) {
    if (row.retention.empty()) dense[row.rounds_in_flight] = row.first_token.p95;
    table.add({fmt::format("{}x{}", row.shape.requests, row.shape.prompt), row.retention.empty() ? "-" : row.retention,
               row.mode(), fmt::format("{:.1f}", row.tokens_per_second()), fmt::format("{:.1f}", row.first_token.p50),
               fmt::format("{:.1f}", row.first_token.p95), fmt::format("{:.1f}", row.first_token.most),
               fmt::format("{:.2f}", row.first_token.p95 / dense[row.rounds_in_flight]), mib(row.memory.loaded),
               mib(row.memory.warm_up), mib(row.memory.grown),
               fmt::format("{}/{}", row.reference_high_water, row.reference_slots), std::to_string(row.references_left),
               std::to_string(row.pages_left), std::to_string(row.preemptions)});
  }
  return text + table.text();
}

nlohmann::json json_of(const BurstRow& row) {
  return {{"requests", row.shape.requests},
          {"prompt_tokens", row.shape.prompt},
          {"mode", row.mode()},
          {"retention", row.retention.empty() ? nlohmann::json() : nlohmann::json(std::stod(row.retention))},
          {"rounds", row.rounds},
          {"tokens", row.tokens},
          {"seconds", row.seconds},
          {"tokens_per_second", row.tokens_per_second()},
          {"first_token_milliseconds",
           {{"p50", row.first_token.p50}, {"p95", row.first_token.p95}, {"most", row.first_token.most}}},
          {"memory_bytes",
           {{"weights", row.memory.weights},
            {"kv", row.memory.kv},
            {"loaded", row.memory.loaded},
            {"warm_up", row.memory.warm_up},
            {"grown", row.memory.grown}}},
          {"references",
           {{"slots", row.reference_slots}, {"high_water", row.reference_high_water}, {"left", row.references_left}}},
          {"list_pages",
           {{"total", row.list_pages}, {"high_water", row.list_pages_high_water}, {"left", row.list_pages_left}}},
          {"pages", {{"total", row.pages}, {"left", row.pages_left}}},
          {"preemptions", row.preemptions},
          {"device_rounds", row.device_rounds},
          {"unfinished", row.unfinished},
          {"other_answers", row.other_answers}};
}

nlohmann::json json_of(const BurstBench& bench, const BurstOptions& options) {
  nlohmann::json rows = nlohmann::json::array();
  for (const BurstRow& row : bench.rows) rows.push_back(json_of(row));
  return {{"plugin", bench.plugin},
          {"device", bench.device},
          {"layers", options.geometry.layers},
          {"heads", options.geometry.heads},
          {"vocab", options.geometry.vocab},
          {"answer_tokens", options.answer},
          {"draft_tokens", options.draft_tokens},
          {"draft_loops", options.draft_loops},
          {"rows", std::move(rows)}};
}

}  // namespace

int run_burst(const Config& config, const BurstOptions& options, const std::string& json) {
  Registry registry = make_registry(config);
  const auto bench = bench_bursts(config, registry, options);
  if (!bench.ok()) return report(bench.status());
  fmt::print("{}", text_of(*bench, options));
  if (!json.empty())
    if (const Status status = write_text(json, json_of(*bench, options).dump(2)); !status.ok()) return report(status);
  for (const BurstRow& row : bench->rows)
    if (const Status status = judge(row); !status.ok()) return report(status);
  return 0;
}

}  // namespace tessera::app
