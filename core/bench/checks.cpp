#include "bench/checks.h"

#include <algorithm>

#include "base/progress.h"
#include "base/random.h"
#include "bench/bench.h"
#include "bench/checks_common.h"

namespace tessera {
namespace {

Status check_batch(CheckBench& bench) {
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

Status check_prefill(CheckBench& bench) {
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
    options.limits.max_batch = std::min(bench.limits.max_batch, options.limits.step_tokens / bench.limits.round_rows());
    TESSERA_TRY(check_case(bench, bench.runner, "prefill", fmt::format("steps of {} rows", budget), requests, *wanted,
                           options));
  }
  return {};
}

Status check_packed(CheckBench& bench) {
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

Status check_prefix_hits(CheckBench& bench) {
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

Status check_paged(CheckBench& bench) {
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

Status check_sampling(CheckBench& bench) {
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

/// The larger geometry on this device against the CPU.
Status check_random_model(CheckBench& bench, sdk::DType type) {
  Config plain = bench.config;
  plain.backend = Config{}.backend;
  plain.sparse_decode = {}, plain.speculation = {};  // this geometry has one loop
  Config here = plain;
  here.backend = bench.config.backend;
  auto own = open_random(here, bench.registry, type);
  if (!own.ok()) return own.status();
  auto cpu = open_random(plain, bench.registry, type);
  if (!cpu.ok()) return cpu.status();
  Requests requests = ragged(bench, 4, 900, 0);
  for (SimulatedRequest& request : requests) request.loops = {};
  auto wanted = alone(**cpu, requests);
  if (!wanted.ok()) return wanted.status();
  SchedulerLimits limits = bench.limits;
  limits.depths = 1, limits.capture_depth = 0, limits.sparse_tables = false, limits.draft_tokens = 0;
  return check_case(bench, **own, "kernels", fmt::format("113 M geometry, {}, against the cpu", sdk::dtype_name(type)),
                    requests, *wanted, {.limits = limits});
}

Status check_kernels(CheckBench& bench) {
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
  static const std::vector<std::string> suites{"batch", "prefill", "packed",      "paged",  "sampling",
                                               "loops", "sparse",  "speculative", "graphs", "kernels"};
  return suites;
}

Result<std::vector<CheckRow>> run_checks(const Config& config, Registry& registry, const CheckOptions& options) {
  Config wide = config;
  wide.scheduler.max_batch = std::max(wide.scheduler.max_batch, 16);
  wide.scheduler.step_tokens = std::max(wide.scheduler.step_tokens, 1024);
  wide.scheduler.max_queue = std::max(wide.scheduler.max_queue, 64);
  wide.speculation.rounds_in_flight = 1;  // rounds on the device have runners of their own (checks_flights.cpp)
  Config roomy = wide;
  if (roomy.speculation.kind == "none") roomy.speculation.kind = "prompt_lookup";
  roomy.speculation.draft_tokens = std::max(roomy.speculation.draft_tokens, kMostDrafts);
  auto runner = Runner::open(roomy, registry, {});
  if (!runner.ok()) return runner.status();
  std::vector<CheckRow> rows;
  constexpr std::int64_t kCases = 16 + 10 + 8 + 18 + 3 + 3 + 21 + 74 + 5 + 6;
  Progress progress("checking", kCases);
  SchedulerLimits limits = scheduler_limits(wide, **runner);
  limits.prefix_cache = false;
  CheckBench bench{roomy, registry, **runner, limits, options.seed, progress, rows};
  const auto wants = [&](const char* suite) {
    return std::find(options.suites.begin(), options.suites.end(), suite) != options.suites.end();
  };
  if (wants("batch")) TESSERA_TRY(check_batch(bench));
  if (wants("prefill")) TESSERA_TRY(check_prefill(bench));
  if (wants("packed")) TESSERA_TRY(check_packed(bench));
  if (wants("paged")) TESSERA_TRY(check_paged(bench));
  if (wants("sampling")) TESSERA_TRY(check_sampling(bench));
  if (wants("loops")) TESSERA_TRY(check_loops(bench));
  if (wants("sparse")) TESSERA_TRY(check_sparse(bench));
  if (wants("speculative")) TESSERA_TRY(check_speculative(bench));
  if (wants("graphs")) TESSERA_TRY(check_graphs(bench));
  if (wants("kernels")) TESSERA_TRY(check_kernels(bench));
  return rows;
}

}  // namespace tessera
