#include "bench/checks.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/progress.h"
#include "base/random.h"
#include "bench/bench.h"
#include "bench/simulate.h"

namespace tessera {
namespace {

using Requests = std::vector<SimulatedRequest>;
constexpr std::int32_t kGenerated = 6;

/// What one suite needs: the runner, the limits, and the answers of each request run alone.
struct Bench {
  const Config& config;
  Registry& registry;
  Runner& runner;
  SchedulerLimits limits;
  std::uint64_t seed;
  Progress& progress;
  std::vector<CheckRow>& rows;
};

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

Requests ragged(const Bench& bench, std::int32_t count, std::uint64_t stream, double temperature) {
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
    requests.push_back(request);
  }
  return requests;
}

/// Each request in an engine of its own: one shot, one sequence, no cache.
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
    auto simulation = simulate(runner, std::span(&request, 1), options);
    if (!simulation.ok()) return simulation.status();
    traces.push_back(std::move(simulation->traces[0]));
  }
  return traces;
}

void compare(const Trace& wanted, const Trace& found, std::size_t vocab, CheckRow& row) {
  for (std::size_t i = 0; i < found.tokens.size(); ++i) {
    ++row.compared;
    if (i >= wanted.tokens.size() || found.tokens[i] != wanted.tokens[i]) {
      ++row.differing_tokens;
      return;  // what follows a different token is another text
    }
    std::int64_t bits = 0;
    for (std::size_t k = i * vocab; k < (i + 1) * vocab; ++k)
      bits +=
          std::popcount(std::bit_cast<std::uint32_t>(wanted.logits[k]) ^ std::bit_cast<std::uint32_t>(found.logits[k]));
    row.differing_bits += bits;
    row.differing_rows += bits != 0 ? 1 : 0;
  }
}

/// Runs `requests` under `options` and compares every trace with its lone run. `judge` may fail the case.
Status check_case(Bench& bench, Runner& runner, const std::string& suite, const std::string& name,
                  const Requests& requests, const std::vector<Trace>& wanted, const SimulationOptions& options,
                  const std::function<void(const Simulation&, CheckRow&)>& judge = {}) {
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
  if (row.compared == 0) row.failure = "nothing was compared";
  if (judge) judge(*simulation, row);
  bench.rows.push_back(row);
  bench.progress.advance(1);
  return {};
}

Status check_batch(Bench& bench) {
  for (std::int32_t size = 2; size <= 16; ++size) {
    const Requests requests = ragged(bench, size, static_cast<std::uint64_t>(size), 0);
    auto wanted = alone(bench.runner, requests);
    if (!wanted.ok()) return wanted.status();
    SimulationOptions options{.limits = bench.limits};
    options.limits.max_batch = std::min(size, bench.runner.limits().max_slices);
    TESSERA_TRY(
        check_case(bench, bench.runner, "batch", fmt::format("{} ragged requests", size), requests, *wanted, options));
  }
  Requests requests = ragged(bench, 12, 99, 0);
  auto wanted = alone(bench.runner, requests);
  if (!wanted.ok()) return wanted.status();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].arrive_step = static_cast<std::int32_t>(i / 2);
    if (i % 3 == 1) requests[i].cancel_step = requests[i].arrive_step + static_cast<std::int32_t>(i % 4);
  }
  return check_case(bench, bench.runner, "batch", "arrivals and cancelled neighbours", requests, *wanted,
                    {.limits = bench.limits});
}

Status check_prefill(Bench& bench) {
  const Requests requests = ragged(bench, 6, 200, 0);
  auto wanted = alone(bench.runner, requests);
  if (!wanted.ok()) return wanted.status();
  for (std::int32_t cap : {1, 7, 16, 37, 64, 128, 256}) {
    SimulationOptions options{.limits = bench.limits};
    options.limits.chunk_cap = cap;
    TESSERA_TRY(
        check_case(bench, bench.runner, "prefill", fmt::format("chunks of {}", cap), requests, *wanted, options));
  }
  for (std::int32_t budget : {17, 50, 300}) {
    SimulationOptions options{.limits = bench.limits};
    options.limits.step_tokens = std::min(budget, bench.limits.step_tokens);
    options.limits.max_batch = std::min(bench.limits.max_batch, options.limits.step_tokens);
    TESSERA_TRY(check_case(bench, bench.runner, "prefill", fmt::format("steps of {} rows", budget), requests, *wanted,
                           options));
  }
  return {};
}

Status check_packed(Bench& bench) {
  const Requests requests = ragged(bench, 10, 300, 0);
  auto wanted = alone(bench.runner, requests);
  if (!wanted.ok()) return wanted.status();
  for (std::uint64_t order = 1; order <= 8; ++order) {
    SimulationOptions options{.limits = bench.limits, .packing_seed = bench.seed + order};
    TESSERA_TRY(
        check_case(bench, bench.runner, "packed", fmt::format("packing order {}", order), requests, *wanted, options));
  }
  return {};
}

Status check_prefix_hits(Bench& bench) {
  for (std::int32_t shared : {0, 1, 15, 16, 17, 31, 32, 33, 47, 48, 49, 64}) {
    Random random(bench.seed, 400 + static_cast<std::uint64_t>(shared));
    Requests requests(3);
    const auto common = random_prompt(random, shared, bench.runner.spec().vocab);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      requests[i].prompt = common;
      const auto own = random_prompt(random, i == 0 ? 20 : 1, bench.runner.spec().vocab);
      requests[i].prompt.insert(requests[i].prompt.end(), own.begin(), own.end());
      requests[i].max_tokens = kGenerated;
      requests[i].sampling.temperature = 0;
      requests[i].loops.max = bench.runner.spec().loops;
      requests[i].arrive_step = static_cast<std::int32_t>(i) * 2 * requests[i].loops.max;
    }
    auto wanted = alone(bench.runner, requests);
    if (!wanted.ok()) return wanted.status();
    SimulationOptions options{.limits = bench.limits};
    options.limits.prefix_cache = true;
    const std::int64_t expected = 2 * (shared / 16) * 16;
    TESSERA_TRY(check_case(bench, bench.runner, "paged", fmt::format("prefix of {} shared", shared), requests, *wanted,
                           options, [&](const Simulation& simulation, CheckRow& row) {
                             row.note = fmt::format("{} tokens hit", simulation.stats.prefix_hit_tokens);
                             if (simulation.stats.prefix_hit_tokens != expected)
                               row.failure = fmt::format("expected {} tokens from the prefix cache", expected);
                           }));
  }
  return {};
}

Status check_paged(Bench& bench) {
  const Requests requests = ragged(bench, 8, 500, 0);
  auto wanted = alone(bench.runner, requests);
  if (!wanted.ok()) return wanted.status();
  for (std::uint64_t order = 1; order <= 4; ++order) {
    SimulationOptions options{.limits = bench.limits, .page_seed = bench.seed + order};
    TESSERA_TRY(
        check_case(bench, bench.runner, "paged", fmt::format("shuffled pages {}", order), requests, *wanted, options));
  }
  TESSERA_TRY(check_prefix_hits(bench));
  // Just enough pages for the largest request: everything else has to give way.
  for (bool cache : {false, true}) {
    Requests tight;
    Random random(bench.seed, 600);
    for (int i = 0; i < 4; ++i) {
      SimulatedRequest request;
      request.prompt = random_prompt(random, 30, bench.runner.spec().vocab);
      request.max_tokens = 40;
      request.sampling.temperature = 0;
      request.loops = loops_of(bench.runner.spec().loops, i);
      tight.push_back(request);
    }
    auto lone = alone(bench.runner, tight);
    if (!lone.ok()) return lone.status();
    SimulationOptions options{.limits = bench.limits,
                              .pages = std::min(9 * bench.runner.spec().loops, bench.runner.num_pages())};
    options.limits.prefix_cache = cache;
    const std::string name = cache ? "preempted, prefix cache on" : "preempted and recomputed";
    TESSERA_TRY(check_case(bench, bench.runner, "paged", name, tight, *lone, options,
                           [](const Simulation& simulation, CheckRow& row) {
                             row.note = fmt::format("{} preemptions, {} rows recomputed", simulation.stats.preemptions,
                                                    simulation.stats.recomputed_rows);
                             if (simulation.stats.preemptions == 0) row.failure = "nothing was preempted";
                           }));
  }
  return {};
}

Status check_sampling(Bench& bench) {
  Requests requests = ragged(bench, 12, 700, 0.9);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    SamplingParams& s = requests[i].sampling;
    if (i % 4 == 1) s.top_k = 5;
    if (i % 4 == 2) s.top_p = 0.8;
    if (i % 4 == 3) s.min_p = 0.05, s.repetition_penalty = 1.2, s.presence_penalty = 0.5;
    s.temperature = 0.5 + 0.1 * static_cast<double>(i);
  }
  auto wanted = alone(bench.runner, requests);
  if (!wanted.ok()) return wanted.status();
  TESSERA_TRY(
      check_case(bench, bench.runner, "sampling", "seeded, batched", requests, *wanted, {.limits = bench.limits}));
  SimulationOptions chunked{.limits = bench.limits, .page_seed = 3, .packing_seed = 5};
  chunked.limits.chunk_cap = 7;
  TESSERA_TRY(check_case(bench, bench.runner, "sampling", "seeded, chunked and shuffled", requests, *wanted, chunked));
  for (std::size_t i = 0; i < requests.size(); ++i) requests[i].arrive_step = static_cast<std::int32_t>(i);
  return check_case(bench, bench.runner, "sampling", "seeded, staggered arrivals", requests, *wanted,
                    {.limits = bench.limits});
}

/// The same tokens at other loops have other KV: none of it may be handed on.
Status check_other_loops(Bench& bench) {
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
Status check_answer_as_prompt(Bench& bench) {
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

Status check_loops(Bench& bench) {
  if (bench.runner.spec().loops == 1) return {};
  TESSERA_TRY(check_other_loops(bench));
  TESSERA_TRY(check_answer_as_prompt(bench));
  const Requests requests = ragged(bench, 12, 1002, 0.7);
  auto wanted = alone(bench.runner, requests);
  if (!wanted.ok()) return wanted.status();
  return check_case(bench, bench.runner, "loops", "rows of all depths in one step", requests, *wanted,
                    {.limits = bench.limits}, [](const Simulation& simulation, CheckRow& row) {
                      std::int32_t kinds = 0;
                      for (const std::int64_t rows : simulation.stats.decoded_loops) kinds += rows > 0 ? 1 : 0;
                      row.note = fmt::format("decoded rows left after {} different numbers of loops", kinds);
                      if (kinds < 3) row.failure = "too few of them";
                    });
}

/// The larger geometry on this device against the CPU.
Status check_random_model(Bench& bench, sdk::DType type) {
  Config plain = bench.config;
  plain.backend = Config{}.backend;
  auto own = open_random(bench.config, bench.registry, type);
  if (!own.ok()) return own.status();
  auto cpu = open_random(plain, bench.registry, type);
  if (!cpu.ok()) return cpu.status();
  const Requests requests = ragged(bench, 4, 900, 0);
  auto wanted = alone(**cpu, requests);
  if (!wanted.ok()) return wanted.status();
  return check_case(bench, **own, "kernels", fmt::format("113 M geometry, {}, against the cpu", sdk::dtype_name(type)),
                    requests, *wanted, {.limits = bench.limits});
}

Status check_kernels(Bench& bench) {
  const Requests requests = ragged(bench, 6, 800, 0);
  auto wanted = alone(bench.runner, requests);
  if (!wanted.ok()) return wanted.status();
  const auto with = [&](const std::string& key, const std::string& value) -> Status {
    Config changed = bench.config;
    if (changed.backend.name != "cpu") changed.backend = Config{}.backend;  // portable bits: the CPU's are compared
    std::erase_if(changed.backend.options, [&](const PluginOption& option) { return option.key == key; });
    changed.backend.options.push_back({key, value, {"check", 0, 0}});
    auto runner = Runner::open(changed, bench.registry, {});
    if (!runner.ok() && runner.status().code != Code::unsupported) return runner.status();
    if (!runner.ok()) {
      CheckRow row{.suite = "kernels", .name = key + " " + value, .note = {}, .failure = {}};
      row.note = std::string("skipped: ") + runner.status().message;
      bench.rows.push_back(row);
      bench.progress.advance(1);
      return {};
    }
    return check_case(bench, **runner, "kernels", key + " " + value, requests, *wanted, {.limits = bench.limits});
  };
  for (const char* isa : {"scalar", "avx2", "avx512"}) TESSERA_TRY(with("isa", isa));
  for (const char* threads : {"1", "2", "3"}) TESSERA_TRY(with("threads", threads));
  if (bench.config.backend.name == "cpu") return {};
  TESSERA_TRY(check_random_model(bench, sdk::DType::f32));
  return check_random_model(bench, sdk::DType::bf16);
}

}  // namespace

const std::vector<std::string>& check_suites() {
  static const std::vector<std::string> suites{"batch", "prefill", "packed", "paged", "sampling", "loops", "kernels"};
  return suites;
}

Result<std::vector<CheckRow>> run_checks(const Config& config, Registry& registry, const CheckOptions& options) {
  Config wide = config;
  wide.scheduler.max_batch = std::max(wide.scheduler.max_batch, 16);
  wide.scheduler.step_tokens = std::max(wide.scheduler.step_tokens, 1024);
  wide.scheduler.max_queue = std::max(wide.scheduler.max_queue, 64);
  auto runner = Runner::open(wide, registry, {});
  if (!runner.ok()) return runner.status();
  std::vector<CheckRow> rows;
  constexpr std::int64_t kCases = 16 + 10 + 8 + 18 + 3 + 3 + 6;
  Progress progress("checking", kCases);
  SchedulerLimits limits = scheduler_limits(wide, **runner);
  limits.prefix_cache = false;
  Bench bench{wide, registry, **runner, limits, options.seed, progress, rows};
  const auto wants = [&](const char* suite) {
    return std::find(options.suites.begin(), options.suites.end(), suite) != options.suites.end();
  };
  if (wants("batch")) TESSERA_TRY(check_batch(bench));
  if (wants("prefill")) TESSERA_TRY(check_prefill(bench));
  if (wants("packed")) TESSERA_TRY(check_packed(bench));
  if (wants("paged")) TESSERA_TRY(check_paged(bench));
  if (wants("sampling")) TESSERA_TRY(check_sampling(bench));
  if (wants("loops")) TESSERA_TRY(check_loops(bench));
  if (wants("kernels")) TESSERA_TRY(check_kernels(bench));
  return rows;
}

}  // namespace tessera
