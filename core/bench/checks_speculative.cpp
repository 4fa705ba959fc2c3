#include <algorithm>

#include "bench/checks_common.h"

namespace tessera {
namespace {

constexpr std::int32_t kTokens = 24;  // generated

struct Drafts {
  std::int32_t tokens, loops;
  std::string name() const {
    return loops == 0 ? fmt::format("{} looked up", tokens)
                      : fmt::format("{} drafted by {} loop{}", tokens, loops, loops == 1 ? "" : "s");
  }
};

/// What this model can be drafted by.
std::vector<Drafts> drafts_for(const CheckBench& bench) {
  std::vector<Drafts> all;
  for (std::int32_t loops = 0; loops < std::min(bench.runner.spec().loops, 4); ++loops)
    for (const std::int32_t tokens : {1, 2, 3, 4, 8})
      if (tokens <= kMostDrafts) all.push_back({tokens, loops});
  return all;
}

SchedulerLimits drafting(const CheckBench& bench, const Drafts& drafts) {
  SchedulerLimits limits = bench.limits;
  limits.draft_tokens = drafts.tokens;
  limits.draft_loops = drafts.loops;
  limits.max_batch = std::min(limits.max_batch, bench.runner.limits().max_rows / limits.round_rows());
  return limits;
}

/// Short prompts with a phrase that comes back, so that there is something to look up; greedy and sampled.
Requests repetitive(const CheckBench& bench, std::uint64_t stream) {
  Random random(bench.seed, stream);
  Requests requests;
  for (std::int32_t i = 0; i < 5; ++i) {
    SimulatedRequest request;
    const auto phrase = random_prompt(random, 7 + i, bench.runner.spec().vocab);
    const auto between = random_prompt(random, 1 + 9 * i, bench.runner.spec().vocab);
    request.prompt = phrase;
    request.prompt.insert(request.prompt.end(), between.begin(), between.end());
    request.prompt.insert(request.prompt.end(), phrase.begin(), phrase.begin() + 4);
    request.max_tokens = kTokens - i;
    request.sampling.temperature = i % 2 == 0 ? 0 : 0.8;
    request.sampling.seed = random.bits();
    if (i == 3) request.sampling.repetition_penalty = 1.2, request.sampling.presence_penalty = 0.5;
    request.loops = loops_of(bench.runner.spec().loops, i == 4 ? 1 : 0);  // one leaves early, and is not drafted
    if (i != 2) request.loops.sparse_from = bench.runner.sparse_from();
    requests.push_back(request);
  }
  return requests;
}

std::string confirmed(const SchedulerStats& stats) {
  std::int64_t candidates = 0, right = 0;
  for (std::size_t i = 0; i < stats.candidates.size(); ++i)
    candidates += stats.candidates[i], right += stats.confirmed[i];
  return fmt::format("{} rounds, {} of {} candidates confirmed", stats.rounds, right, candidates);
}

void must_speculate(const Simulation& simulation, CheckRow& row) {
  row.note = confirmed(simulation.stats);
  if (simulation.stats.rounds == 0) row.failure = "nothing was speculated";
}

/// Wrong candidates at random: a rejection at every place, and one place after it.
Status check_rejections(CheckBench& bench, const Requests& requests, const std::vector<Trace>& wanted) {
  const Drafts most{kMostDrafts, std::min(bench.runner.spec().loops - 1, 2)};
  const SimulationOptions options{.limits = drafting(bench, most), .draft_noise = bench.seed};
  return check_case(bench, bench.runner, "speculative", most.name() + ", some wrong on purpose", requests, wanted,
                    options, [&](const Simulation& simulation, CheckRow& row) {
                      must_speculate(simulation, row);
                      if (most.loops == 0) return;  // how many are looked up is the text's affair
                      for (std::size_t i = 0; i < kMostDrafts; ++i)
                        if (simulation.stats.confirmed[i] == simulation.stats.candidates[i])
                          row.failure = fmt::format("no candidate was rejected at place {}", i + 1);
                    });
}

Status check_circumstances(CheckBench& bench, const Requests& requests, const std::vector<Trace>& wanted) {
  const Drafts drafts{3, std::min(bench.runner.spec().loops - 1, 2)};
  const auto run = [&](const std::string& name, const Requests& changed, const SimulationOptions& options) {
    return check_case(bench, bench.runner, "speculative", drafts.name() + ", " + name, changed, wanted, options,
                      must_speculate);
  };
  SimulationOptions options{.limits = drafting(bench, drafts)};
  Requests arriving = requests;
  for (std::size_t i = 0; i < arriving.size(); ++i) arriving[i].arrive_step = static_cast<std::int32_t>(3 * i);
  TESSERA_TRY(run("arrivals", arriving, options));
  arriving[1].cancel_step = arriving[1].arrive_step + 9;
  arriving[3].cancel_step = arriving[3].arrive_step + 12;
  TESSERA_TRY(run("cancelled in a round", arriving, options));
  options.page_seed = 3, options.packing_seed = 7, options.limits.chunk_cap = 5;
  TESSERA_TRY(run("chunked and shuffled", requests, options));
  options = {.limits = drafting(bench, drafts)};
  options.limits.step_tokens = options.limits.max_batch * options.limits.round_rows() + 3;
  return run("steps with few rows to spare", requests, options);
}

/// The pool holds the largest sequence and little more.
Status check_preempted(CheckBench& bench, const Requests& requests, const std::vector<Trace>& wanted) {
  const Drafts drafts{3, std::min(bench.runner.spec().loops - 1, 2)};
  std::int32_t blocks = 0;
  for (const SimulatedRequest& request : requests)
    blocks = std::max(blocks, (static_cast<std::int32_t>(request.prompt.size()) + request.max_tokens + 15) / 16);
  SimulationOptions options{.limits = drafting(bench, drafts), .pages = (blocks + 1) * bench.runner.spec().loops};
  for (const bool cache : {false, true}) {
    options.limits.prefix_cache = cache;
    TESSERA_TRY(check_case(bench, bench.runner, "speculative",
                           drafts.name() + (cache ? ", preempted, prefix cache on" : ", preempted"), requests, wanted,
                           options, [](const Simulation& simulation, CheckRow& row) {
                             must_speculate(simulation, row);
                             row.note += fmt::format(", {} preemptions", simulation.stats.preemptions);
                             if (simulation.stats.preemptions == 0) row.failure = "nothing was preempted";
                           }));
  }
  return {};
}

/// The answer ends with a token that candidates were confirmed before and after.
Status check_stops(CheckBench& bench, Requests requests, const std::vector<Trace>& whole) {
  for (std::size_t i = 0; i < requests.size(); ++i)
    requests[i].stop_token = whole[i].tokens[whole[i].tokens.size() - 2 - i];
  auto wanted = alone(bench.runner, requests);
  if (!wanted.ok()) return wanted.status();
  const Drafts drafts{kMostDrafts, std::min(bench.runner.spec().loops - 1, 2)};
  return check_case(bench, bench.runner, "speculative", drafts.name() + ", the answer ends in a round", requests,
                    *wanted, {.limits = drafting(bench, drafts)}, must_speculate);
}

/// The same answers again, from the pages that their first rounds left.
Status check_prefixes(CheckBench& bench, const Requests& requests) {
  Requests twice = requests;
  for (SimulatedRequest request : requests) {
    request.arrive_step = 8 * kTokens;
    twice.push_back(request);
  }
  auto wanted = alone(bench.runner, twice);
  if (!wanted.ok()) return wanted.status();
  const Drafts drafts{2, std::min(bench.runner.spec().loops - 1, 2)};
  SimulationOptions options{.limits = drafting(bench, drafts)};
  options.limits.prefix_cache = true;
  return check_case(bench, bench.runner, "speculative", drafts.name() + ", prefix hits", twice, *wanted, options,
                    [](const Simulation& simulation, CheckRow& row) {
                      must_speculate(simulation, row);
                      row.note += fmt::format(", {} tokens hit", simulation.stats.prefix_hit_tokens);
                      if (simulation.stats.prefix_hit_tokens == 0) row.failure = "no prefix was hit";
                    });
}

Result<Simulation> rejecting_alone(CheckBench& bench, const SimulatedRequest& request, const Drafts& drafts) {
  SimulationOptions options{.limits = drafting(bench, drafts), .acceptance = Acceptance::rejection};
  options.limits.max_batch = 1;
  return simulate(bench.runner, std::span(&request, 1), options);
}

/// By rejection, sampled answers are others than the serial ones, and depend on the loops that draft; on nothing else.
Status check_rejection_sampling(CheckBench& bench, const Requests& requests, const std::vector<Trace>& serial) {
  const std::int32_t loops = std::min(bench.runner.spec().loops - 1, 2);
  std::vector<Trace> wanted;
  for (const SimulatedRequest& request : requests) {
    auto lone = rejecting_alone(bench, request, {3, loops});
    if (!lone.ok()) return lone.status();
    wanted.push_back(std::move(lone->traces[0]));
  }
  const auto run = [&](const std::string& name, const Requests& changed, SimulationOptions options) {
    options.acceptance = Acceptance::rejection;
    return check_case(bench, bench.runner, "speculative", "rejection sampling, " + name, changed, wanted, options,
                      [&](const Simulation& simulation, CheckRow& row) {
                        must_speculate(simulation, row);
                        if (options.pages > 0 && simulation.stats.preemptions == 0)
                          row.failure = "nothing was preempted";
                        bool same = true;
                        for (std::size_t i = 0; i < wanted.size(); ++i) same &= wanted[i].tokens == serial[i].tokens;
                        if (same)
                          row.failure = "no answer differs from the serial one: nothing was sampled by rejection";
                      });
  };
  TESSERA_TRY(run("rounds of other lengths", requests, {.limits = drafting(bench, {kMostDrafts, loops})}));
  TESSERA_TRY(run("single candidates", requests, {.limits = drafting(bench, {1, loops})}));
  Requests arriving = requests;
  for (std::size_t i = 0; i < arriving.size(); ++i) arriving[i].arrive_step = static_cast<std::int32_t>(3 * i);
  SimulationOptions options{.limits = drafting(bench, {3, loops}), .page_seed = 3, .packing_seed = 7};
  options.draft_noise = bench.seed;
  options.limits.chunk_cap = 5;
  TESSERA_TRY(run("arrivals, chunked, shuffled, some wrong on purpose", arriving, options));
  std::int32_t blocks = 0;
  for (const SimulatedRequest& request : requests)
    blocks = std::max(blocks, (static_cast<std::int32_t>(request.prompt.size()) + request.max_tokens + 15) / 16);
  options = {.limits = drafting(bench, {3, loops}), .pages = (blocks + 1) * bench.runner.spec().loops};
  options.limits.prefix_cache = true;
  return run("preempted, prefix cache on", requests, options);
}

}  // namespace

Status check_speculative(CheckBench& bench) {
  const Requests requests = repetitive(bench, 1100);
  auto wanted = alone(bench.runner, requests);
  if (!wanted.ok()) return wanted.status();
  for (const Drafts& drafts : drafts_for(bench))
    TESSERA_TRY(check_case(bench, bench.runner, "speculative", drafts.name(), requests, *wanted,
                           {.limits = drafting(bench, drafts)}, must_speculate));
  TESSERA_TRY(check_rejections(bench, requests, *wanted));
  TESSERA_TRY(check_circumstances(bench, requests, *wanted));
  TESSERA_TRY(check_preempted(bench, requests, *wanted));
  TESSERA_TRY(check_stops(bench, requests, *wanted));
  TESSERA_TRY(check_rejection_sampling(bench, requests, *wanted));
  TESSERA_TRY(check_prefixes(bench, requests));
  return check_flights(bench);
}

}  // namespace tessera
