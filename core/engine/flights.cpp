// Rounds of speculation that the device runs and draws for by itself.
#include <limits>

#include "base/check.h"
#include "base/log.h"
#include "engine/engine.h"

namespace tessera {

bool Engine::launch_round() {
  if (runner_->rounds() == nullptr) return false;
  const RoundPlan plan = scheduler_.plan_round();
  if (plan.empty()) return false;
  RoundReport report{.wants_masses = plan.number % kMassSteps == 0};
  const auto submitted = runner_->rounds()->submit(plan, report);
  if (!submitted.ok()) {
    scheduler_.launch(plan);
    flights_.push_back(plan);
    fail_rounds(submitted.status());
    return true;
  }
  if (!*submitted) return false;
  if (!report.masses.empty()) metrics_.retained_mass(report.masses, runner_->spec().layers);
  scheduler_.launch(plan);
  flights_.push_back(plan);
  return true;
}

void Engine::land_round() {
  check(!flights_.empty(), "a round is waited for and none is in flight");
  std::vector<sdk::RoundAnswer> answers;
  if (Status status = runner_->rounds()->collect(flights_.front().number, answers); !status.ok())
    return fail_rounds(status);
  const RoundPlan plan = std::move(flights_.front());
  flights_.pop_front();
  std::vector<RoundOutcome> outcomes;
  for (std::size_t i = 0; i < plan.items.size(); ++i) {
    const SequenceId id = plan.items[i].id;
    const auto found = sequences_.find(id);
    if (found == sequences_.end() || !scheduler_.alive(id)) continue;  // it has ended: its answer is not looked at
    outcomes.push_back(take_answer(found->second, id, answers[i]));
  }
  scheduler_.land(plan.number, outcomes);
  end_completed();
}

void Engine::land_all() {
  while (!flights_.empty()) land_round();
}

RoundOutcome Engine::take_answer(const Place& place, SequenceId id, const sdk::RoundAnswer& answer) {
  Job& job = *place.job;
  if (!job.failure.ok()) return {id, {0}, true, 0};
  Choice& choice = job.choices[place.choice];
  check(answer.confirmed >= 0 && answer.confirmed <= limits_.draft_tokens &&
            answer.position == scheduler_.computed(id) + answer.confirmed + 1,
        "sequence {}: {} candidates were confirmed from position {} on, but its frontier is at {}", id,
        answer.confirmed, scheduler_.computed(id), answer.position);
  RoundOutcome outcome{id, {}, false, answer.confirmed};
  for (std::int32_t i = 0; i <= answer.confirmed && !outcome.finished; ++i) {
    const std::int32_t token = answer.tokens[i];
    if (token < 0) {
      job.failure =
          fail(Code::internal, "a row of logits has a NaN or nothing above -inf, so no token can be chosen from it");
      outcome.finished = true;
      break;
    }
    deliver(job, place.choice, {token, std::numeric_limits<float>::quiet_NaN(), {}});
    outcome.tokens.push_back(token);
    outcome.finished = choice.answer.finish() != sdk::FinishReason::none;
  }
  if (outcome.tokens.empty()) outcome.tokens = {0};  // of a failed sequence, which ends
  return outcome;
}

void Engine::fail_rounds(const Status& status) {
  log(LogLevel::error, "a round failed, the requests in flight end: {}", status.message);
  runner_->rounds()->discard();
  const std::deque<RoundPlan> dropped = std::move(flights_);
  flights_.clear();
  for (const RoundPlan& plan : dropped)
    for (const RoundPlan::Item& item : plan.items)
      if (const auto found = sequences_.find(item.id); found != sequences_.end())
        end(*found->second.job, sdk::EventKind::failed, &status);
  for (const RoundPlan& plan : dropped) scheduler_.land(plan.number, {});
  scheduler_.forget_prefixes();
}

}  // namespace tessera
