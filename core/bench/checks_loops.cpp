#include "bench/checks_common.h"

namespace tessera {
namespace {

/// The same tokens at other loops have other KV: none of it may be handed on.
Status check_other_loops(CheckBench& bench) {
  const std::int32_t loops = bench.runner.spec().loops;
  Random random(bench.seed, 1000);
  const auto prompt = random_prompt(random, 50, bench.runner.spec().vocab);
  Requests requests(static_cast<std::size_t>(loops));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt = prompt;
    requests[i].max_tokens = kGenerated;
    requests[i].sampling.temperature = 0;
    requests[i].loops.max = static_cast<std::int32_t>(i) + 1;
    requests[i].arrive_step = static_cast<std::int32_t>(i) * 8;
  }
  auto wanted = alone(bench.runner, requests);
  if (!wanted.ok()) return wanted.status();
  SimulationOptions options{.limits = bench.limits};
  options.limits.prefix_cache = true;
  return check_case(bench, bench.runner, "loops", "one prompt at every number of loops", requests, *wanted, options,
                    [](const Simulation& simulation, CheckRow& row) {
                      if (simulation.stats.prefix_hit_tokens != 0) row.failure = "KV of other loops was handed on";
                    });
}

/// An answer whose tokens left early becomes part of a prompt whose tokens run all loops.
Status check_answer_as_prompt(CheckBench& bench) {
  const std::int32_t loops = bench.runner.spec().loops;
  Random random(bench.seed, 1001);
  Requests requests(1);
  requests[0].prompt = random_prompt(random, 33, bench.runner.spec().vocab);
  requests[0].max_tokens = 40;
  requests[0].sampling.temperature = 0;
  requests[0].loops = {.max = loops, .min = 1, .exit_threshold = 0.5f};
  auto first = alone(bench.runner, requests);
  if (!first.ok()) return first.status();
  SimulatedRequest again = requests[0];
  again.prompt.insert(again.prompt.end(), (*first)[0].tokens.begin(), (*first)[0].tokens.end());
  again.max_tokens = kGenerated;
  again.loops = {.max = loops};
  again.arrive_step = 41 * loops;
  requests.push_back(again);
  auto wanted = alone(bench.runner, requests);
  if (!wanted.ok()) return wanted.status();
  SimulationOptions options{.limits = bench.limits};
  options.limits.prefix_cache = true;
  return check_case(bench, bench.runner, "loops", "an answer with exits becomes a prompt", requests, *wanted, options,
                    [](const Simulation& simulation, CheckRow& row) {
                      row.note = fmt::format("{} tokens hit", simulation.stats.prefix_hit_tokens);
                      if (simulation.stats.prefix_hit_tokens != 32) row.failure = "expected 32 tokens of the prompt";
                    });
}

}  // namespace

Status check_loops(CheckBench& bench) {
  if (bench.runner.spec().loops == 1) return skip_suite(bench, "loops", "the model has one loop");
  TESSERA_TRY(check_other_loops(bench));
  TESSERA_TRY(check_answer_as_prompt(bench));
  const Requests requests = ragged(bench, 12, 1002, 0.7);
  auto wanted = alone(bench.runner, requests);
  if (!wanted.ok()) return wanted.status();
  const bool sparse = bench.runner.capture_depth() > 0;
  return check_case(bench, bench.runner, "loops", "rows of all depths in one step", requests, *wanted,
                    {.limits = bench.limits}, [&](const Simulation& simulation, CheckRow& row) {
                      std::int32_t kinds = 0;
                      for (const std::int64_t rows : simulation.stats.decoded_loops) kinds += rows > 0 ? 1 : 0;
                      row.note = fmt::format("decoded rows left after {} different numbers of loops", kinds);
                      if (sparse && simulation.stats.consumed_rows == 0) row.failure = "no row was sparse";
                      if (kinds < 3) row.failure = "too few of them";
                    });
}

}  // namespace tessera
