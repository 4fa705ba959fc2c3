// Rounds on the device, two in flight, against lone requests that are decoded one row at a time.
#include <algorithm>

#include "bench/checks_common.h"

namespace tessera {
namespace {

constexpr std::int32_t kTokens = 30;  // generated

/// A runner whose rounds have `tokens` candidates of `loops` loops.
struct Flights {
  std::unique_ptr<Runner> runner;
  SchedulerLimits limits;
  std::string name;
};

Result<Flights> open(CheckBench& bench, std::int32_t tokens, std::int32_t loops) {
  Config config = bench.config;
  config.speculation.kind = "self";
  config.speculation.acceptance = "exact";
  config.speculation.draft_tokens = tokens;
  config.speculation.draft_loops = loops;
  config.speculation.rounds_in_flight = DeviceRounds::kBanks;
  auto runner = Runner::open(config, bench.registry, {});
  if (!runner.ok()) return runner.status();
  SchedulerLimits limits = scheduler_limits(config, **runner);
  limits.prefix_cache = false;
  return Flights{
      std::move(*runner), limits,
      fmt::format("{} in flight, {} drafted by {} loop{}", DeviceRounds::kBanks, tokens, loops, loops == 1 ? "" : "s")};
}

/// Greedy ones, which fly, among one that is sampled, one that is penalized and one that leaves early.
Requests mixed(const CheckBench& bench, std::uint64_t stream) {
  Random random(bench.seed, stream);
  Requests requests;
  for (std::int32_t i = 0; i < 8; ++i) {
    SimulatedRequest request;
    request.prompt = random_prompt(random, 3 + 9 * i, bench.runner.spec().vocab);
    request.max_tokens = kTokens - i;
    request.sampling.temperature = i == 2 ? 0.8 : 0;
    request.sampling.seed = random.bits();
    if (i == 4) request.sampling.repetition_penalty = 1.2;
    request.loops = loops_of(bench.runner.spec().loops, i == 6 ? 1 : 0);
    if (i != 3) request.loops.sparse_from = bench.runner.sparse_from();
    requests.push_back(request);
  }
  return requests;
}

using Judge = std::function<void(const Simulation&, CheckRow&)>;

Status run(CheckBench& bench, Flights& flights, const std::string& name, const Requests& requests,
           const std::vector<Trace>& wanted, const SimulationOptions& options, const Judge& judge = {}) {
  return check_case(bench, *flights.runner, "speculative", flights.name + name, requests, wanted, options,
                    [&](const Simulation& simulation, CheckRow& row) {
                      const SchedulerStats& stats = simulation.stats;
                      row.note = fmt::format("{} rounds on the device, {} discarded, {} others", stats.device_rounds,
                                             stats.discarded_rounds, stats.rounds - stats.device_rounds);
                      if (stats.device_rounds == 0) row.failure = "no round ran on the device";
                      if (judge) judge(simulation, row);
                    });
}

Status check_circumstances(CheckBench& bench, Flights& flights, const Requests& requests,
                           const std::vector<Trace>& wanted) {
  SimulationOptions options{.limits = flights.limits, .round_logits = false};
  Requests arriving = requests;
  for (std::size_t i = 0; i < arriving.size(); ++i) arriving[i].arrive_step = static_cast<std::int32_t>(3 * i);
  TESSERA_TRY(run(bench, flights, ", arrivals", arriving, wanted, options));
  Requests cancelled = requests;
  for (const std::size_t i : {0, 5}) cancelled[i].cancel_step = 12 + static_cast<std::int32_t>(i);
  TESSERA_TRY(run(bench, flights, ", cancelled in flight", cancelled, wanted, options,
                  [](const Simulation& simulation, CheckRow& row) {
                    if (simulation.stats.discarded_rounds == 0) row.failure = "no round was discarded";
                  }));
  options.page_seed = 3, options.packing_seed = 7, options.limits.chunk_cap = 5;
  TESSERA_TRY(run(bench, flights, ", chunked and shuffled", requests, wanted, options));
  options = {.limits = flights.limits, .round_logits = false};
  std::int32_t blocks = 0;
  for (const SimulatedRequest& request : requests)
    blocks = std::max(blocks, (static_cast<std::int32_t>(request.prompt.size()) + request.max_tokens + 15) / 16);
  options.pages = (blocks + 2) * bench.runner.spec().loops;
  for (const bool cache : {false, true}) {
    options.limits.prefix_cache = cache;
    TESSERA_TRY(run(bench, flights, cache ? ", preempted, prefix cache on" : ", preempted", requests, wanted, options,
                    [](const Simulation& simulation, CheckRow& row) {
                      if (simulation.stats.preemptions == 0) row.failure = "nothing was preempted";
                    }));
  }
  return {};
}

/// The answer ends with a token that candidates were confirmed before and after.
Status check_stops(CheckBench& bench, Flights& flights, Requests requests, const std::vector<Trace>& whole) {
  for (std::size_t i = 0; i < requests.size(); ++i)
    requests[i].stop_token = whole[i].tokens[whole[i].tokens.size() - 2 - i];
  auto wanted = alone(bench.runner, requests);
  if (!wanted.ok()) return wanted.status();
  return run(bench, flights, ", the answer ends in a round", requests, *wanted,
             {.limits = flights.limits, .round_logits = false});
}

/// Questions that go on from answers whose KV was written in flight, against cold ones. Sparse rows are no hits: for a
/// prompt they are dense.
Status check_prefixes(CheckBench& bench, Flights& flights, const Requests& requests, const std::vector<Trace>& first) {
  Requests twice = requests;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    SimulatedRequest request = requests[i];
    request.prompt.insert(request.prompt.end(), first[i].tokens.begin(), first[i].tokens.end());
    request.prompt.push_back(7);
    request.arrive_step = 8 * kTokens;
    request.max_tokens = 4;
    twice.push_back(request);
  }
  auto wanted = alone(bench.runner, twice);
  if (!wanted.ok()) return wanted.status();
  SimulationOptions options{.limits = flights.limits, .round_logits = false};
  options.limits.prefix_cache = true;
  return run(bench, flights, ", read by later questions", twice, *wanted, options,
             [&](const Simulation& simulation, CheckRow& row) {
               row.note += fmt::format(", {} tokens hit", simulation.stats.prefix_hit_tokens);
               std::int64_t prompts = 0;
               for (const SimulatedRequest& request : requests) prompts += std::ssize(request.prompt);
               if (bench.runner.capture_depth() == 0 && simulation.stats.prefix_hit_tokens <= prompts)
                 row.failure = "no decoded token was hit";
             });
}

/// Few loops draft badly: a rejection at every place.
Status check_rejections(CheckBench& bench, Flights& flights, const Requests& requests,
                        const std::vector<Trace>& wanted) {
  return run(bench, flights, ", rejected at every place", requests, wanted,
             {.limits = flights.limits, .round_logits = false}, [&](const Simulation& simulation, CheckRow& row) {
               const SchedulerStats& stats = simulation.stats;
               for (std::size_t i = 0; i < static_cast<std::size_t>(flights.limits.draft_tokens); ++i)
                 if (stats.candidates[i] == stats.confirmed[i])
                   row.failure = fmt::format("no candidate was rejected at place {}", i + 1);
             });
}

/// Rounds launched kernel by kernel, and rounds replayed from a graph.
Status check_launches(CheckBench& bench, Flights& flights, const Requests& requests, const std::vector<Trace>& wanted) {
  GraphCache& graphs = flights.runner->graphs();
  const std::int32_t capacity = graphs.capacity();
  if (capacity == 0) return {};
  const SimulationOptions options{.limits = flights.limits};
  for (const bool record : {false, true}) {
    TESSERA_TRY(graphs.set_capacity(record ? capacity : 0));
    const std::int64_t before = flights.runner->rounds()->replayed();
    TESSERA_TRY(run(bench, flights, record ? ", replayed" : ", launched kernel by kernel", requests, wanted, options,
                    [&](const Simulation&, CheckRow& row) {
                      const std::int64_t replayed = flights.runner->rounds()->replayed() - before;
                      row.note += fmt::format(", {} replayed", replayed);
                      if ((replayed > 0) != record) row.failure = fmt::format("{} rounds were replayed", replayed);
                    }));
  }
  return {};
}

}  // namespace

Status check_flights(CheckBench& bench) {
  if (bench.runner.spec().loops == 1 || bench.runner.backend().rounds() == nullptr) return {};
  const Requests requests = mixed(bench, 1200);
  auto wanted = alone(bench.runner, requests);
  if (!wanted.ok()) return wanted.status();
  for (std::int32_t loops = 1; loops < std::min(bench.runner.spec().loops, 4); ++loops)
    for (const std::int32_t tokens : {1, 2, 3, 4, 8}) {
      auto flights = open(bench, tokens, loops);
      if (!flights.ok()) return flights.status();
      SimulationOptions options{.limits = flights->limits};
      TESSERA_TRY(run(bench, *flights, ", logits", requests, *wanted, options));
      options.round_logits = false;
      TESSERA_TRY(run(bench, *flights, "", requests, *wanted, options));
      if (tokens == 8 && loops == 1) TESSERA_TRY(check_rejections(bench, *flights, requests, *wanted));
      if (tokens != 3 || loops != 2) continue;
      TESSERA_TRY(check_launches(bench, *flights, requests, *wanted));
      TESSERA_TRY(check_circumstances(bench, *flights, requests, *wanted));
      TESSERA_TRY(check_stops(bench, *flights, requests, *wanted));
      TESSERA_TRY(check_prefixes(bench, *flights, requests, *wanted));
    }
  return {};
}

}  // namespace tessera
