#include "engine/limits.h"

#include <algorithm>
#include <cmath>

#include "engine/drafts.h"
#include "engine/runner.h"

namespace tessera {
namespace {

std::int32_t draft_tokens(const Config& config) {
  return config.speculation.kind == "none" ? 0 : config.speculation.draft_tokens;
}

std::int32_t draft_loops(const Config& config) {
  return config.speculation.kind == "self" ? config.speculation.draft_loops : 0;
}

Status check_speculation(const Config& config, const DecoderSpec& spec) {
  if (draft_tokens(config) == 0) return {};
  const std::string where = config.speculation.where.text();
  if (draft_loops(config) >= spec.loops)
    return fail(Code::invalid_argument, "{}: speculation drafts with {} loops, but the model has {}; {}", where,
                draft_loops(config), spec.loops == 1 ? "one" : fmt::format("{}", spec.loops),
                spec.loops == 1 ? "use speculation.kind: prompt_lookup" : "lower speculation.draft_loops");
  if (rounds_in_flight(config) > 1 && config.speculation.kind != "self")
    return fail(
        Code::invalid_argument,
        "{}: speculation.rounds_in_flight is {}, but the candidates of {} are looked up by the host, which must "
        "know all tokens; use kind: self, or rounds_in_flight: 1",
        where, rounds_in_flight(config), config.speculation.kind);
  const std::int32_t rows = config.scheduler.max_batch * (1 + draft_tokens(config));
  if (config.scheduler.step_tokens < rows)
    return fail(
        Code::invalid_argument,
        "{}: scheduler.step_tokens is {}, but {} sequences of {} drafted tokens need {} rows in one step; raise "
        "it, or lower speculation.draft_tokens or scheduler.max_batch",
        where, config.scheduler.step_tokens, config.scheduler.max_batch, draft_tokens(config), rows);
  return {};
}

}  // namespace

std::int32_t rounds_in_flight(const Config& config) {
  return config.speculation.kind == "none" ? 1 : config.speculation.rounds_in_flight;
}

std::int64_t list_pool_size(const ListDemand& demand) {
  const std::int64_t one = std::int64_t{demand.rows} * demand.pages.back();
  double slope = 0;  // a row that sees n positions needs at most 1 + slope * n pages
  for (std::size_t i = 0; i < demand.pages.size(); ++i)
    slope = std::max(slope, (demand.pages[i] - 1.0) / static_cast<double>(i + 1));
  const auto held = demand.rows * (demand.sequences +
                                   static_cast<std::int64_t>(std::ceil(slope * static_cast<double>(demand.positions))));
  return std::min(demand.sequences * one, std::max({one, held, demand.cheap}));
}

RoundShape round_shape(const Config& config, const DecoderSpec& spec, std::int32_t capture_depth) {
  return {.rows = draft_tokens(config) + 1,
          .draft_loops = draft_loops(config),
          .loops = spec.loops,
          .capture_depth = capture_depth};
}

Acceptance acceptance_of(const Config& config) {
  return config.speculation.kind != "none" && config.speculation.acceptance == "rejection" ? Acceptance::rejection
                                                                                           : Acceptance::exact;
}

Result<sdk::StepLimits> step_limits(const Config& config, const DecoderSpec& spec, bool all_logits) {
  const std::int32_t context = config.model.max_context == 0 ? spec.max_context : config.model.max_context;
  if (context > spec.max_context)
    return fail(Code::invalid_argument,
                "{}: model.max_context is {} but the model was made for {} positions; lower it or leave it out",
                config.model.where.text(), context, spec.max_context);
  const std::int32_t batch = config.scheduler.max_batch;
  TESSERA_TRY(check_speculation(config, spec));
  const std::int32_t decode_rows = batch * (1 + draft_tokens(config));
  return sdk::StepLimits{.max_rows = config.scheduler.step_tokens,
                         .max_slices = batch,
                         .max_logit_rows = all_logits ? config.scheduler.step_tokens : decode_rows,
                         .max_context = context,
                         .max_pages = batch * ((context + sdk::kPageSize - 1) / sdk::kPageSize),
                         .max_decode_rows = decode_rows};
}

void set_sparse(SchedulerLimits& limits, const Runner& runner) {
  limits.capture_depth = runner.capture_depth();
  limits.sparse_tables = runner.sparse_tables();
  limits.num_list_pages = runner.num_list_pages();
  limits.list_pages = runner.list_pages();
}

SchedulerLimits scheduler_limits(const Config& config, const Runner& runner) {
  SchedulerLimits limits{.max_batch = config.scheduler.max_batch,
                         .step_tokens = config.scheduler.step_tokens,
                         .chunk_cap = config.scheduler.chunk_cap,
                         .max_queue = config.scheduler.max_queue,
                         .max_context = runner.max_context(),
                         .depths = runner.spec().loops,
                         .draft_tokens = draft_tokens(config),
                         .draft_loops = draft_loops(config),
                         .rounds_in_flight = rounds_in_flight(config),
                         .prefix_cache = config.cache.prefix_cache};
  set_sparse(limits, runner);
  return limits;
}

}  // namespace tessera
