#include <algorithm>

#include "bench/checks_common.h"

namespace tessera {
namespace {

/// Answers that cross a segment boundary of attention while others are short.
Requests long_answers(const CheckBench& bench) {
  Requests requests = ragged(bench, 6, 1500, 0.7);
  Random random(bench.seed, 1501);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (i % 2 == 0)
      requests[i].prompt = random_prompt(random, 225 + static_cast<std::int32_t>(i), bench.runner.spec().vocab);
    requests[i].max_tokens = i % 2 == 0 ? 60 : 25;
    if (bench.limits.sparse_decode()) requests[i].loops.sparse_from = bench.runner.sparse_from();
  }
  return requests;
}

/// One circumstance with at most `capacity` graphs, against lone runs whose steps were launched kernel by kernel.
Status check_with(CheckBench& bench, const std::string& name, std::int32_t capacity, const Requests& requests,
                  const std::vector<Trace>& wanted, const SimulationOptions& options) {
  GraphCache& graphs = bench.runner.graphs();
  TESSERA_TRY(graphs.set_capacity(capacity));
  const GraphStats before = graphs.stats();
  return check_case(
      bench, bench.runner, "graphs", name, requests, wanted, options, [&](const Simulation&, CheckRow& row) {
        const GraphStats& now = graphs.stats();
        const std::int64_t replayed = now.replayed - before.replayed;
        row.note = fmt::format("{} recorded, {} passes replayed, {} not, {} forgotten", now.recorded - before.recorded,
                               replayed, now.eager - before.eager, now.forgotten - before.forgotten);
        if (replayed == 0) row.failure = "nothing was replayed";
        if (graphs.size() > capacity) row.failure = fmt::format("{} graphs are kept", graphs.size());
      });
}

Status check_all_with(CheckBench& bench) {
  const std::int32_t capacity = bench.runner.graphs().capacity();
  Requests requests = long_answers(bench);
  TESSERA_TRY(bench.runner.graphs().set_capacity(0));
  auto wanted = alone(bench.runner, requests);
  if (!wanted.ok()) return wanted.status();
  SimulationOptions options{.limits = bench.limits};
  TESSERA_TRY(check_with(bench, "together", capacity, requests, *wanted, options));
  TESSERA_TRY(check_with(bench, "two graphs at most", 2, requests, *wanted, options));
  options.limits.draft_tokens = 3;
  TESSERA_TRY(check_with(bench, "speculated", capacity, requests, *wanted, options));
  options.page_seed = 5, options.packing_seed = 9, options.limits.chunk_cap = 7;
  for (std::size_t i = 0; i < requests.size(); ++i) requests[i].arrive_step = static_cast<std::int32_t>(3 * i);
  requests[3].cancel_step = 40;
  TESSERA_TRY(check_with(bench, "arrivals and a cancel, chunked and shuffled", capacity, requests, *wanted, options));
  options.limits.draft_tokens = 0;
  options.pages = std::min(30 * bench.runner.spec().loops, bench.runner.num_pages());
  return check_with(bench, "few pages", capacity, requests, *wanted, options);
}

}  // namespace

Status check_graphs(CheckBench& bench) {
  const std::int32_t capacity = bench.runner.graphs().capacity();
  if (capacity == 0)
    return skip_suite(bench, "graphs",
                      bench.config.scheduler.graphs == 0 ? "scheduler.graphs is 0" : "these plugins record no graphs");
  TESSERA_TRY(check_all_with(bench));
  return bench.runner.graphs().set_capacity(capacity);
}

}  // namespace tessera
