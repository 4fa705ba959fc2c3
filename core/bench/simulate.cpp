#include "bench/simulate.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/random.h"
#include "engine/confirm.h"
#include "sample/sampler.h"

namespace tessera {
namespace {

void shuffle_slices(StepPlan& plan, Random& random) {
  for (std::size_t i = plan.slices.size(); i > 1; --i)
    std::swap(plan.slices[i - 1], plan.slices[random.below(static_cast<std::uint32_t>(i))]);
}

/// Samples one slice; of a draft nothing is recorded.
Result<StepOutcome> record(const PlanSlice& slice, std::span<const float> logits, const SimulatedRequest& request,
                           RoundDrafts& drafts, Trace& trace) {
  SampleScratch scratch;
  Status failure;
  const bool draft = slice.role == SliceRole::draft;
  std::vector<std::int32_t> history = trace.tokens;
  history.insert(history.end(), slice.candidates.begin(), slice.candidates.end());
  const auto point = [&](std::int32_t position) -> SamplePoint {
    return {request.sampling, 0, static_cast<std::uint32_t>(position), request.prompt, history};
  };
  if (draft && request.forced.empty())
    return StepOutcome{slice.id, {drafts.propose(slice, logits, point(slice.first_position + 1), scratch)}, false};
  const auto take = [&](std::span<const float> row, std::int32_t position) -> std::optional<std::int32_t> {
    std::int32_t token = 0;
    if (!request.forced.empty()) {
      token = request.forced[std::min(history.size(), request.forced.size() - 1)];
    } else {
      const auto sampled = drafts.take(row, point(position), -1, scratch);
      if (!sampled.ok()) failure = sampled.status();
      if (!failure.ok()) return {};
      token = sampled->token;
    }
    history.push_back(token);
    if (!draft) trace.logits.insert(trace.logits.end(), row.begin(), row.end());
    return token;
  };
  const auto ends = [&] {
    return !draft && (std::ssize(history) == request.max_tokens || history.back() == request.stop_token);
  };
  StepOutcome outcome{slice.id, confirm(slice, logits, take, ends), false};
  if (!failure.ok()) return failure;
  if (draft) return outcome;
  drafts.drop();
  trace.tokens = std::move(history);
  outcome.finished = std::ssize(trace.tokens) == request.max_tokens || trace.tokens.back() == request.stop_token;
  return outcome;
}

void spoil_drafts(const StepPlan& plan, std::size_t vocab, Random& noise, std::vector<StepOutcome>& outcomes) {
  for (const PlanSlice& slice : plan.slices) {
    if (slice.role != SliceRole::draft || noise.below(3) != 0) continue;
    for (StepOutcome& outcome : outcomes)
      if (outcome.id == slice.id)
        outcome.tokens[0] = static_cast<std::int32_t>((static_cast<std::size_t>(outcome.tokens[0]) + 1) % vocab);
  }
}

/// `plan` is in the order that ran.
Status record_all(const StepPlan& plan, const StepResult& result, std::size_t vocab,
                  std::span<const SimulatedRequest> requests, std::vector<RoundDrafts>& drafts, Simulation& simulation,
                  std::vector<StepOutcome>& outcomes) {
  std::size_t row = 0;
  for (const std::size_t answered : result.answered) {
    const PlanSlice& slice = plan.slices[answered];
    const auto index = static_cast<std::size_t>(slice.id) - 1;
    const auto rows = static_cast<std::size_t>(slice.num_answers());
    auto outcome = record(slice, std::span(result.logits).subspan(vocab * row, vocab * rows), requests[index],
                          drafts[index], simulation.traces[index]);
    if (!outcome.ok()) return outcome.status();
    outcomes.push_back(*std::move(outcome));
    row += rows;
  }
  return {};
}

/// result.masses is [layer][captured rows][heads].
void add_masses(const StepPlan& plan, const StepResult& result, std::span<const SimulatedRequest> requests,
                Simulation& simulation) {
  std::vector<bool> sampled;
  for (const PlanSlice& slice : plan.slices)
    if (slice.mode == sdk::RowMode::capture)
      for (std::int32_t row = 0; row < slice.num_rows(); ++row)
        sampled.push_back(slice.first_position + row + 1 >=
                          std::ssize(requests[static_cast<std::size_t>(slice.id) - 1].prompt));
  if (result.masses.empty()) return;
  const std::size_t heads = static_cast<std::size_t>(result.heads), rows = result.masses.size() / heads;
  for (std::size_t row = 0; row < rows; ++row)
    if (sampled[row % sampled.size()])
      for (std::size_t head = 0; head < heads; ++head) simulation.masses.push_back(result.masses[row * heads + head]);
}

}  // namespace

Result<Simulation> simulate(Runner& runner, std::span<const SimulatedRequest> requests,
                            const SimulationOptions& options) {
  const auto seed = options.page_seed == 0 ? std::nullopt : std::optional(options.page_seed);
  PagePool pool(options.pages > 0 ? options.pages : runner.num_pages(), seed);
  Scheduler scheduler(options.limits, pool);
  Simulation simulation;
  simulation.traces.resize(requests.size());
  std::vector<DraftSource> sources;
  std::vector<RoundDrafts> drafts;
  for (const SimulatedRequest& request : requests) {
    sources.push_back(draft_source(options.acceptance, options.limits, request.sampling, request.loops));
    drafts.emplace_back(sources.back());
  }
  Random random(options.packing_seed, 1), noise(options.draft_noise, 2);
  StepResult result;
  const auto vocab = static_cast<std::size_t>(runner.spec().vocab);
  std::size_t arrived = 0;
  for (std::int32_t step = 0; arrived < requests.size() || !scheduler.idle(); ++step) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (requests[i].arrive_step == step) {
        const SequenceSpec spec{i + 1, requests[i].prompt, requests[i].max_tokens, requests[i].loops,
                                sources[i] == DraftSource::first_loops};
        TESSERA_TRY(scheduler.submit(std::span(&spec, 1)));
        ++arrived;
      }
      if (requests[i].cancel_step == step) scheduler.cancel(i + 1);
    }
    const StepPlan plan = scheduler.plan();
    for (const SequenceId id : plan.preempted) drafts[static_cast<std::size_t>(id) - 1].drop();
    StepPlan run = plan;
    if (options.packing_seed != 0) shuffle_slices(run, random);
    std::vector<StepOutcome> outcomes;
    if (!run.empty()) {
      TESSERA_TRY(runner.step(run, result));
      add_masses(run, result, requests, simulation);
      TESSERA_TRY(record_all(run, result, vocab, requests, drafts, simulation, outcomes));
    }
    if (options.draft_noise != 0) spoil_drafts(plan, vocab, noise, outcomes);
    scheduler.commit(plan, outcomes, run.empty() ? std::span<const ExitOutcome>{} : result.exits);
  }
  simulation.stats = scheduler.stats();
  simulation.references_left = scheduler.references().outstanding();
  simulation.pages_left_in_use = pool.in_use();
  return simulation;
}

}  // namespace tessera
