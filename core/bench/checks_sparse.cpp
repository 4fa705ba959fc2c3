#include <algorithm>

#include "bench/checks_common.h"
#include "bench/sparse_config.h"

namespace tessera {
namespace {

/// The plainest arithmetic that there is: one instruction after the other, on the CPU.
Config oracle_of(const Config& config) {
  Config changed = config;
  changed.backend = Config{}.backend;
  changed.backend.options.push_back({"isa", "scalar", {"check sparse", 0, 0}});
  return changed;
}

Requests decoding(const CheckBench& bench, const Runner& runner) {
  Requests requests = ragged(bench, 5, 1200, 0.7);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].max_tokens = 12;
    requests[i].loops.sparse_from = i == 4 ? LoopParams::kNever : runner.sparse_from();
    if (i == 1) requests[i].loops.decode_tail = 3;
  }
  return requests;
}

void must_be_sparse(const Simulation& simulation, CheckRow& row) {
  row.note =
      fmt::format("{} rows captured, {} consumed", simulation.stats.captured_rows, simulation.stats.consumed_rows);
  if (simulation.stats.consumed_rows == 0) row.failure = "no row was sparse";
}

/// One retention on this device, in several circumstances, against the oracle alone.
Status check_retention(CheckBench& bench, const std::string& retention) {
  const Config config = with_retention(bench.config, retention, "check sparse");
  auto own = Runner::open(config, bench.registry, {});
  if (!own.ok()) return own.status();
  auto oracle = Runner::open(oracle_of(config), bench.registry, {});
  if (!oracle.ok()) return oracle.status();
  const Requests requests = decoding(bench, **own);
  auto wanted = alone(**oracle, requests);
  if (!wanted.ok()) return wanted.status();
  const auto run = [&](const std::string& name, const SimulationOptions& options) {
    return check_case(bench, **own, "sparse", fmt::format("retention {} against the oracle, {}", retention, name),
                      requests, *wanted, options, must_be_sparse);
  };
  SimulationOptions options{.limits = bench.limits};
  set_sparse(options.limits, **own);
  options.limits.draft_tokens = 0;
  TESSERA_TRY(run("together", options));
  for (std::int32_t loops = 1; loops < std::min(bench.runner.spec().loops, 4); ++loops) {
    options.limits.draft_tokens = 3, options.limits.draft_loops = loops;
    TESSERA_TRY(run(fmt::format("3 drafted by {} loops", loops), options));
  }
  options.page_seed = 5, options.packing_seed = 9, options.limits.chunk_cap = 7;
  return run("drafted, chunked and shuffled", options);
}

/// Keeping everything is dense decoding: the control of every sparse strategy.
Status check_everything_kept(CheckBench& bench) {
  const Config config = with_retention(bench.config, "1", "check sparse");
  Config dense = bench.config;
  dense.sparse_decode = {};
  auto own = Runner::open(config, bench.registry, {});
  if (!own.ok()) return own.status();
  auto plain = Runner::open(dense, bench.registry, {});
  if (!plain.ok()) return plain.status();
  const Requests requests = decoding(bench, **own);
  auto wanted = alone(**plain, requests);
  if (!wanted.ok()) return wanted.status();
  SimulationOptions options{.limits = bench.limits};
  set_sparse(options.limits, **own);
  return check_case(bench, **own, "sparse", "retention 1 against dense decoding", requests, *wanted, options);
}

/// A strategy that rewrites page tables.
struct Tables {
  const char* name;
  std::vector<std::pair<const char*, const char*>> options;
  std::string text() const {
    std::string text = name;
    for (const auto& [key, value] : options) text += fmt::format(" {}={}", key, value);
    return text;
  }
};

Config with_tables(const Config& config, const Tables& tables) {
  Config changed = config;
  changed.sparse_decode = {.plugin = {.name = tables.name, .path = {}, .options = {}, .where = {"check sparse", 0, 0}}};
  for (const auto& [key, value] : tables.options)
    changed.sparse_decode.plugin.options.push_back({key, value, {"check sparse", 0, 0}});
  return changed;
}

/// Against `wanted_by` alone: together, chunked and shuffled, speculated where rows are dense, preempted, with a prefix
/// cache.
Status check_tables(CheckBench& bench, const Tables& tables, const Config& wanted_by, const std::string& beside) {
  auto own = Runner::open(with_tables(bench.config, tables), bench.registry, {});
  if (!own.ok()) return own.status();
  auto other = Runner::open(wanted_by, bench.registry, {});
  if (!other.ok()) return other.status();
  Requests requests = decoding(bench, **own);
  requests[2].loops.sparse_from = static_cast<std::int32_t>(requests[2].prompt.size()) + 5;  // dense ones first
  auto wanted = alone(**other, requests);
  if (!wanted.ok()) return wanted.status();
  const auto run = [&](const std::string& name, const SimulationOptions& options) {
    return check_case(bench, **own, "sparse", fmt::format("{} against {}, {}", tables.text(), beside, name), requests,
                      *wanted, options, [](const Simulation& simulation, CheckRow& row) {
                        row.note = fmt::format("{} rows selected pages, {} preemptions",
                                               simulation.stats.selecting_rows, simulation.stats.preemptions);
                        if (simulation.stats.selecting_rows == 0) row.failure = "no row was sparse";
                      });
  };
  SimulationOptions options{.limits = bench.limits};
  options.limits.sparse_tables = true;
  options.limits.draft_tokens = 0;
  TESSERA_TRY(run("together", options));
  options.limits.draft_tokens = 3;
  options.page_seed = 5, options.packing_seed = 9, options.limits.chunk_cap = 7;
  TESSERA_TRY(run("chunked, shuffled, dense rows speculated", options));
  std::int32_t blocks = 0;  // of the longest sequence: the others have to give way
  for (const SimulatedRequest& request : requests)
    blocks = std::max(blocks, (static_cast<std::int32_t>(request.prompt.size()) + request.max_tokens + 15) / 16);
  options = {.limits = bench.limits, .pages = blocks + 1};
  options.limits.sparse_tables = options.limits.prefix_cache = true;
  return run("few pages, prefix cache on", options);
}

Status check_all_tables(CheckBench& bench) {
  const std::string all = std::to_string(bench.runner.max_context());
  Config dense = bench.config;
  dense.sparse_decode = {};
  const Tables everything[] = {{"sink_window", {{"sink", "0"}, {"window", all.c_str()}}},
                               {"page_topk", {{"budget", all.c_str()}}}};
  for (const Tables& tables : everything) TESSERA_TRY(check_tables(bench, tables, dense, "dense decoding"));
  const Tables some[] = {{"sink_window", {{"sink", "16"}, {"window", "32"}}}, {"page_topk", {{"budget", "64"}}}};
  for (const Tables& tables : some)
    TESSERA_TRY(check_tables(bench, tables, oracle_of(with_tables(bench.config, tables)), "the oracle"));
  return {};
}

}  // namespace

Status check_sparse(CheckBench& bench) {
  if (bench.runner.spec().loops == 1) return check_all_tables(bench);
  if (bench.runner.spec().loops < 3) return skip_suite(bench, "sparse", "the model has two loops");
  TESSERA_TRY(check_everything_kept(bench));
  for (const char* retention : {"0.5", "0.25", "0.1", "0.02"}) TESSERA_TRY(check_retention(bench, retention));
  return {};
}

}  // namespace tessera
