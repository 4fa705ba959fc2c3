// What the suites of checks share: requests, their lone runs, and the comparison.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/random.h"
#include "bench/checks.h"
#include "bench/simulate.h"

namespace tessera {

using Requests = std::vector<SimulatedRequest>;
inline constexpr std::int32_t kGenerated = 6;
inline constexpr std::int32_t kMostDrafts = 8;  // candidates of a round that a check's runner has room for

/// What one suite needs: the runner, the limits, and the answers of each request run alone.
struct CheckBench {
  const Config& config;
  Registry& registry;
  Runner& runner;
  SchedulerLimits limits;
  std::uint64_t seed;
  Progress& progress;
  std::vector<CheckRow>& rows;
};

std::vector<std::int32_t> random_prompt(Random& random, std::int32_t length, std::int32_t vocab);

/// Requests of 1 to 200 tokens; of a looped model neighbours of different depths.
Requests ragged(const CheckBench& bench, std::int32_t count, std::uint64_t stream, double temperature);
LoopParams loops_of(std::int32_t loops, std::int32_t index);

/// Each request in an engine of its own: one shot, one sequence, no cache.
Result<std::vector<Trace>> alone(Runner& runner, const Requests& requests);

/// Runs `requests` under `options` and compares every trace with its lone run. `judge` may fail the case.
Status check_case(CheckBench& bench, Runner& runner, const std::string& suite, const std::string& name,
                  const Requests& requests, const std::vector<Trace>& wanted, const SimulationOptions& options,
                  const std::function<void(const Simulation&, CheckRow&)>& judge = {});

/// One row that says why a suite has nothing to do.
Status skip_suite(CheckBench& bench, const std::string& suite, const std::string& why);

/// Suites in files of their own. Those of looped models are skipped for a plain one.
Status check_loops(CheckBench& bench);
Status check_sparse(CheckBench& bench);
Status check_speculative(CheckBench& bench);
Status check_graphs(CheckBench& bench);
/// Part of the suite `speculative`.
Status check_flights(CheckBench& bench);

}  // namespace tessera
