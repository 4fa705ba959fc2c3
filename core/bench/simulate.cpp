#include "bench/simulate.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "engine/confirm.h"
#include "sample/sampler.h"

namespace tessera {
namespace {

void shuffle_slices(StepPlan& plan, Random& random) {
  for (std::size_t i = plan.slices.size(); i > 1; --i)
    std::swap(plan.slices[i - 1], plan.slices[random.below(static_cast<std::uint32_t>(i))]);
}

/// An empty row stayed on the device.
void keep_row(std::span<const float> row, std::size_t vocab, Trace& trace) {
  trace.logits.insert(trace.logits.end(), row.begin(), row.end());
  trace.logits.resize(trace.logits.size() + vocab - row.size());
  trace.seen.push_back(!row.empty());
}

bool ends(const SimulatedRequest& request, std::span<const std::int32_t> tokens) {
  return std::ssize(tokens) == request.max_tokens || tokens.back() == request.stop_token;
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
    if (!draft) keep_row(row, row.size(), trace);
    return token;
  };
  StepOutcome outcome{slice.id, confirm(slice, logits, take, [&] { return !draft && ends(request, history); }), false};
  if (!failure.ok()) return failure;
  if (draft) return outcome;
  drafts.drop();
  trace.tokens = std::move(history);
  outcome.finished = ends(request, trace.tokens);
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

class Simulator {
 public:
  Simulator(Runner& runner, std::span<const SimulatedRequest> requests, const SimulationOptions& options)
      : runner_(runner),
        requests_(requests),
        options_(options),
        pool_(options.pages > 0 ? options.pages : runner.num_pages(),
              options.page_seed == 0 ? std::nullopt : std::optional(options.page_seed)),
        scheduler_(options.limits, pool_, options.page_seed == 0 ? std::nullopt : std::optional(options.page_seed)),
        vocab_(static_cast<std::size_t>(runner.spec().vocab)),
        random_(options.packing_seed, 1),
        noise_(options.draft_noise, 2) {
    simulation_.traces.resize(requests.size());
    for (const SimulatedRequest& request : requests) {
      sources_.push_back(draft_source(options.acceptance, options.limits, request.sampling, request.loops));
      drafts_.emplace_back(sources_.back());
    }
  }

  Result<Simulation> run() {
    for (std::int32_t step = 0; arrived_ < requests_.size() || !scheduler_.idle() || !flights_.empty(); ++step) {
      TESSERA_TRY(arrive(step));
      while (scheduler_.leaving() > 0) TESSERA_TRY(land());
      if (flies() && scheduler_.in_flight() == options_.limits.rounds_in_flight) TESSERA_TRY(land());
      const auto launched = flies() && !recalled_ ? launch() : false;
      if (!launched.ok()) return launched.status();
      while (scheduler_.leaving() > 0) TESSERA_TRY(land());
      const StepPlan plan = scheduler_.plan();
      recalled_ = plan.recall;
      while (plan.recall && !flights_.empty()) TESSERA_TRY(land());
      if (plan.recall) continue;
      const bool lands = !*launched && !flights_.empty();
      if (!plan.empty() || !lands) TESSERA_TRY(run_step(plan));
      if (lands) TESSERA_TRY(land());
    }
    simulation_.stats = scheduler_.stats();
    simulation_.references_left = scheduler_.references().outstanding();
    simulation_.list_pages_left = scheduler_.references().outstanding_pages();
    simulation_.pages_left_in_use = pool_.in_use();
    return std::move(simulation_);
  }

 private:
  struct Flight {
    RoundPlan plan;
    std::vector<float> logits;  // [sequence][row][vocab], or none
  };

  bool flies() const { return options_.limits.rounds_in_flight > 1; }
  const SimulatedRequest& request(SequenceId id) const { return requests_[static_cast<std::size_t>(id) - 1]; }
  Trace& trace(SequenceId id) { return simulation_.traces[static_cast<std::size_t>(id) - 1]; }

  Status arrive(std::int32_t step) {
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      const SimulatedRequest& request = requests_[i];
      if (request.arrive_step == step) {
        const SequenceSpec spec{i + 1,
                                request.prompt,
                                request.max_tokens,
                                request.loops,
                                sources_[i] == DraftSource::first_loops,
                                request.forced.empty() && drawn_by_best(request.sampling, -1)};
        TESSERA_TRY(scheduler_.submit(std::span(&spec, 1)));
        ++arrived_;
      }
      if (request.cancel_step == step) scheduler_.cancel(i + 1);
    }
    return {};
  }

  Status run_step(const StepPlan& plan) {
    for (const SequenceId id : plan.preempted) drafts_[static_cast<std::size_t>(id) - 1].drop();
    StepPlan run = plan;
    if (options_.packing_seed != 0) shuffle_slices(run, random_);
    std::vector<StepOutcome> outcomes;
    if (!run.empty()) {
      TESSERA_TRY(runner_.step(run, result_));
      add_masses(run, result_, requests_, simulation_);
      TESSERA_TRY(record_all(run, outcomes));
    }
    if (options_.draft_noise != 0) spoil_drafts(plan, vocab_, noise_, outcomes);
    scheduler_.commit(plan, outcomes, run.empty() ? std::span<const ExitOutcome>{} : result_.exits);
    return {};
  }

  /// `plan` is in the order that ran.
  Status record_all(const StepPlan& plan, std::vector<StepOutcome>& outcomes) {
    std::size_t row = 0;
    for (const std::size_t answered : result_.answered) {
      const PlanSlice& slice = plan.slices[answered];
      const auto rows = static_cast<std::size_t>(slice.num_answers());
      auto outcome = record(slice, std::span(result_.logits).subspan(vocab_ * row, vocab_ * rows), request(slice.id),
                            drafts_[static_cast<std::size_t>(slice.id) - 1], trace(slice.id));
      if (!outcome.ok()) return outcome.status();
      outcomes.push_back(*std::move(outcome));
      row += rows;
    }
    return {};
  }

  Result<bool> launch() {
    Flight flight{scheduler_.plan_round(), {}};
    if (flight.plan.empty()) return false;
    RoundReport report{.wants_logits = options_.round_logits};
    auto submitted = runner_.rounds()->submit(flight.plan, report);
    if (!submitted.ok() || !*submitted) return submitted;
    flight.logits = std::move(report.logits);
    scheduler_.launch(flight.plan);
    flights_.push_back(std::move(flight));
    return true;
  }

  Status land() {
    const Flight flight = std::move(flights_.front());
    flights_.pop_front();
    std::vector<sdk::RoundAnswer> answers;
    TESSERA_TRY(runner_.rounds()->collect(flight.plan.number, answers));
    std::vector<RoundOutcome> outcomes;
    const auto rows = static_cast<std::size_t>(options_.limits.round_rows());
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const SequenceId id = flight.plan.items[i].id;
      if (!scheduler_.alive(id)) continue;
      check(answers[i].position == scheduler_.computed(id) + answers[i].confirmed + 1,
            "sequence {}: its frontier is at {}, from {} on {} were confirmed", id, answers[i].position,
            scheduler_.computed(id), answers[i].confirmed);
      RoundOutcome outcome{id, {}, false, answers[i].confirmed};
      for (std::size_t row = 0; row <= static_cast<std::size_t>(answers[i].confirmed) && !outcome.finished; ++row) {
        if (answers[i].tokens[row] < 0) return fail(Code::internal, "a round drew no token of sequence {}", id);
        outcome.tokens.push_back(answers[i].tokens[row]);
        trace(id).tokens.push_back(answers[i].tokens[row]);
        const std::span<const float> logits(flight.logits);
        keep_row(logits.empty() ? logits : logits.subspan((i * rows + row) * vocab_, vocab_), vocab_, trace(id));
        outcome.finished = ends(request(id), trace(id).tokens);
      }
      outcomes.push_back(std::move(outcome));
    }
    scheduler_.land(flight.plan.number, outcomes);
    return {};
  }

  Runner& runner_;
  std::span<const SimulatedRequest> requests_;
  const SimulationOptions& options_;
  PagePool pool_;
  Scheduler scheduler_;
  std::size_t vocab_;
  Random random_, noise_;
  Simulation simulation_;
  std::vector<DraftSource> sources_;
  std::vector<RoundDrafts> drafts_;
  StepResult result_;
  std::deque<Flight> flights_;  // oldest first
  bool recalled_ = false;       // the next step is planned before another round is launched
  std::size_t arrived_ = 0;
};

}  // namespace

Result<Simulation> simulate(Runner& runner, std::span<const SimulatedRequest> requests,
                            const SimulationOptions& options) {
  return Simulator(runner, requests, options).run();
}

}  // namespace tessera
