#include "bench/simulate.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/random.h"
#include "sample/sampler.h"

namespace tessera {
namespace {

void shuffle_slices(StepPlan& plan, Random& random) {
  for (std::size_t i = plan.slices.size(); i > 1; --i)
    std::swap(plan.slices[i - 1], plan.slices[random.below(static_cast<std::uint32_t>(i))]);
}

/// Samples every slice that wants logits and records them. `plan` is in the order that ran.
Status record(const StepPlan& plan, const StepResult& result, std::size_t vocab,
              std::span<const SimulatedRequest> requests, Simulation& simulation, std::vector<StepOutcome>& outcomes) {
  SampleScratch scratch;
  std::size_t row = 0;
  for (const std::size_t answered : result.answered) {
    const PlanSlice& slice = plan.slices[answered];
    const auto index = static_cast<std::size_t>(slice.id) - 1;
    const SimulatedRequest& request = requests[index];
    Trace& trace = simulation.traces[index];
    const auto mine = std::span(result.logits).subspan(vocab * row++, vocab);
    std::int32_t token = 0;
    if (!request.forced.empty()) {
      token = request.forced[trace.tokens.size()];
    } else {
      const auto position = slice.first_position + static_cast<std::int32_t>(slice.tokens.size());
      const auto sampled = sample(mine, request.sampling, 0, static_cast<std::uint32_t>(position), request.prompt,
                                  trace.tokens, -1, scratch);
      if (!sampled.ok()) return sampled.status();
      token = sampled->token;
    }
    trace.tokens.push_back(token);
    trace.logits.insert(trace.logits.end(), mine.begin(), mine.end());
    const bool done = static_cast<std::int32_t>(trace.tokens.size()) == request.max_tokens;
    outcomes.push_back({slice.id, token, done});
  }
  return {};
}

/// result.masses is [layer][captured rows][heads].
void add_masses(const StepPlan& plan, const StepResult& result, std::span<const SimulatedRequest> requests,
                Simulation& simulation) {
  std::vector<bool> sampled;
  for (const PlanSlice& slice : plan.slices)
    if (slice.mode == sdk::RowMode::capture)
      sampled.push_back(slice.first_position + 1 >=
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
  Random random(options.packing_seed, 1);
  StepResult result;
  const auto vocab = static_cast<std::size_t>(runner.spec().vocab);
  std::size_t arrived = 0;
  for (std::int32_t step = 0; arrived < requests.size() || !scheduler.idle(); ++step) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (requests[i].arrive_step == step) {
        const SequenceSpec spec{i + 1, requests[i].prompt, requests[i].max_tokens, requests[i].loops};
        TESSERA_TRY(scheduler.submit(std::span(&spec, 1)));
        ++arrived;
      }
      if (requests[i].cancel_step == step) scheduler.cancel(i + 1);
    }
    const StepPlan plan = scheduler.plan();
    StepPlan run = plan;
    if (options.packing_seed != 0) shuffle_slices(run, random);
    std::vector<StepOutcome> outcomes;
    if (!run.empty()) {
      TESSERA_TRY(runner.step(run, result));
      add_masses(run, result, requests, simulation);
      TESSERA_TRY(record(run, result, vocab, requests, simulation, outcomes));
    }
    scheduler.commit(plan, outcomes, run.empty() ? std::span<const ExitOutcome>{} : result.exits);
  }
  simulation.stats = scheduler.stats();
  simulation.references_left = scheduler.references().outstanding();
  simulation.pages_left_in_use = pool.in_use();
  return simulation;
}

}  // namespace tessera
