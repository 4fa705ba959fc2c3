// Rounds of speculation that are slices of steps.
#include "base/check.h"
#include "sched/scheduler.h"
#include "sched/sequence.h"

namespace tessera {

void Scheduler::park(Sequence& sequence, const PlanSlice& slice, const StepOutcome* outcome) {
  Sequence::Round& round = sequence.round;
  if (outcome != nullptr && std::ssize(round.tokens) < round.rows) round.tokens.push_back(outcome->tokens.at(0));
  round.states.push_back(slice.states.at(0));
  round.references.insert(round.references.end(), sequence.pass.references.begin(), sequence.pass.references.end());
  sequence.pass = {};
  if (++round.drafted < round.rows) return;
  check(std::ssize(round.tokens) == round.rows, "a round of {} rows has {} tokens", round.rows, round.tokens.size());
  sequence.pass = {round.rows, limits_.draft_loops, 1, std::move(round.states), std::move(round.references)};
  round.states.clear(), round.references.clear();
}

/// Rejected rows take nothing with them but pages that no computed position needs.
void Scheduler::end_round(Sequence& sequence, const PlanSlice& slice, const StepOutcome& outcome) {
  const auto answered = static_cast<std::int32_t>(outcome.tokens.size());
  std::int32_t confirmed = 0;
  for (std::size_t i = 0; i < outcome.tokens.size() && i + 1 < slice.tokens.size(); ++i)
    confirmed += outcome.tokens[i] == slice.tokens[i + 1] ? 1 : 0;
  count_round(slice.num_rows() - 1, answered, confirmed, outcome.finished);
  release_pages(sequence, blocks_of(sequence.computed));
}

void Scheduler::count_round(std::int32_t candidates, std::int32_t answered, std::int32_t confirmed, bool finished) {
  ++stats_.rounds;
  stats_.round_tokens += answered;
  stats_.rejected_rows += candidates + 1 - answered;
  for (std::int32_t i = 0; i < candidates && (!finished || i < answered); ++i) {
    ++stats_.candidates[static_cast<std::size_t>(i)];
    stats_.confirmed[static_cast<std::size_t>(i)] += i < confirmed ? 1 : 0;
  }
}

}  // namespace tessera
