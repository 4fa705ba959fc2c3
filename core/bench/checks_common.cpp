#include "bench/checks_common.h"

#include <algorithm>
#include <bit>

namespace tessera {
namespace {

void compare(const Trace& wanted, const Trace& found, std::size_t vocab, CheckRow& row) {
  for (std::size_t i = 0; i < found.tokens.size(); ++i) {
    ++row.compared;
    if (i >= wanted.tokens.size() || found.tokens[i] != wanted.tokens[i]) {
      ++row.differing_tokens;
      return;  // what follows a different token is another text
    }
    if (!found.seen[i]) continue;  // its logits stayed on the device
    std::int64_t bits = 0;
    for (std::size_t k = i * vocab; k < (i + 1) * vocab; ++k)
      bits +=
          std::popcount(std::bit_cast<std::uint32_t>(wanted.logits[k]) ^ std::bit_cast<std::uint32_t>(found.logits[k]));
    row.differing_bits += bits;
    row.differing_rows += bits != 0 ? 1 : 0;
  }
}

}  // namespace

std::vector<std::int32_t> random_prompt(Random& random, std::int32_t length, std::int32_t vocab) {
  std::vector<std::int32_t> tokens;
  for (std::int32_t i = 0; i < length; ++i)
    tokens.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(vocab))));
  return tokens;
}

/// Neighbours of different depths: all loops, exits at two thresholds, one loop less, and decoded prompt ends.
LoopParams loops_of(std::int32_t loops, std::int32_t index) {
  LoopParams params{.max = loops};
  if (loops == 1) return params;
  if (index % 4 == 1) params.exit_threshold = 0.5f, params.decode_tail = index % 3;
  if (index % 4 == 2) params.max = loops - 1;
  if (index % 4 == 3) params.exit_threshold = 0.8f, params.min = 2;
  return params;
}

Requests ragged(const CheckBench& bench, std::int32_t count, std::uint64_t stream, double temperature) {
  Random random(bench.seed, stream);
  Requests requests;
  const std::int32_t longest = std::min(200, bench.runner.max_context() - kGenerated);
  for (std::int32_t i = 0; i < count; ++i) {
    SimulatedRequest request;
    const auto length = 1 + static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(longest)));
    request.prompt = random_prompt(random, length, bench.runner.spec().vocab);
    request.max_tokens = 2 + static_cast<std::int32_t>(random.below(kGenerated - 1));
    request.sampling.temperature = temperature;
    request.sampling.seed = random.bits();
    request.loops = loops_of(bench.runner.spec().loops, i);
    if (i % 5 != 4) request.loops.sparse_from = bench.runner.sparse_from();
    requests.push_back(request);
  }
  return requests;
}

Result<std::vector<Trace>> alone(Runner& runner, const Requests& requests) {
  std::vector<Trace> traces;
  for (SimulatedRequest request : requests) {
    request.arrive_step = 0;
    request.cancel_step = -1;
    const auto rows = std::max<std::int32_t>(runner.limits().max_rows, 1);
    SimulationOptions options{.limits = {.max_batch = 1,
                                         .step_tokens = rows,
                                         .chunk_cap = 0,
                                         .max_queue = 1,
                                         .max_context = runner.max_context(),
                                         .depths = runner.spec().loops,
                                         .prefix_cache = false}};
    set_sparse(options.limits, runner);
    auto simulation = simulate(runner, std::span(&request, 1), options);
    if (!simulation.ok()) return simulation.status();
    traces.push_back(std::move(simulation->traces[0]));
  }
  return traces;
}

Status skip_suite(CheckBench& bench, const std::string& suite, const std::string& why) {
  bench.rows.push_back({.suite = suite, .name = "all", .note = "skipped: " + why, .failure = {}});
  return {};
}

Status check_case(CheckBench& bench, Runner& runner, const std::string& suite, const std::string& name,
                  const Requests& requests, const std::vector<Trace>& wanted, const SimulationOptions& options,
                  const std::function<void(const Simulation&, CheckRow&)>& judge) {
  auto simulation = simulate(runner, requests, options);
  if (!simulation.ok()) return simulation.status();
  CheckRow row{.suite = suite, .name = name, .note = {}, .failure = {}};
  const auto vocab = static_cast<std::size_t>(runner.spec().vocab);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].cancel_step < 0 && simulation->traces[i].tokens.size() != wanted[i].tokens.size())
      row.failure = "a request did not end";
    compare(wanted[i], simulation->traces[i], vocab, row);
  }
  if (simulation->pages_left_in_use != 0) row.failure = "pages were left in use";
  if (simulation->references_left != 0) row.failure = "reference slots were left in use";
  if (simulation->list_pages_left != 0) row.failure = "pages of index lists were left in use";
  if (row.compared == 0) row.failure = "nothing was compared";
  if (judge) judge(*simulation, row);
  bench.rows.push_back(row);
  bench.progress.advance(1);
  return {};
}

}  // namespace tessera
