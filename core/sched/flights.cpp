// Rounds of speculation that run on the device alone.
#include <algorithm>

#include "base/check.h"
#include "sched/scheduler.h"
#include "sched/sequence.h"

namespace tessera {

/// Between rounds, or with one in flight; the last candidate's answer must still be one of its tokens, and the rows of
/// a round are of one kind.
bool Scheduler::may_launch(const Sequence& sequence) const {
  const std::int32_t rows = limits_.round_rows(), rounds = sequence.flight.rounds();
  if (!sequence.flies(limits_)) return false;
  if (rounds == limits_.rounds_in_flight || sequence.pass.rows > 0 || sequence.round.rows > 0) return false;
  const std::int32_t left = sequence.max_tokens - (sequence.size() - sequence.prompt) - rounds * rows;
  const std::int32_t last = sequence.computed + (rounds + 1) * rows - 1;
  const bool alike = limits_.capture_depth == 0 || sequence.sparse(sequence.computed) || !sequence.sparse(last);
  return sequence.computed + 1 == sequence.size() && !sequence.decided(sequence.computed) && left >= rows && alike;
}

std::int32_t Scheduler::owed_pages() const {
  std::int32_t owed = 0;
  for (const auto& sequence : running_)
    owed +=
        std::max(0, blocks_of(sequence->size()) * limits_.depths - static_cast<std::int32_t>(sequence->table.size()));
  return owed;
}

/// A step reads the weights for its prompts anyway: decoded rows ride in it, where a round of their own would delay the
/// prompts by as much again.
bool Scheduler::prompts_run() const {
  return std::any_of(running_.begin(), running_.end(), [](const auto& sequence) {
    return sequence->flight.rounds() == 0 && sequence->computed + 1 < sequence->size();
  });
}

RoundPlan Scheduler::plan_round() const {
  RoundPlan plan;
  plan.number = launched_;
  if (limits_.rounds_in_flight == 1 || in_flight() == limits_.rounds_in_flight || leaving() > 0) return plan;
  if (prompts_run()) return plan;
  const auto rows = static_cast<std::size_t>(limits_.round_rows()), depths = static_cast<std::size_t>(limits_.depths);
  std::vector<std::int32_t> free = free_states_;
  const auto take_states = [&] {
    check(free.size() >= rows, "a round is planned where {} of {} places are free", free.size(), rows);
    const std::vector<std::int32_t> taken(free.end() - static_cast<std::ptrdiff_t>(rows), free.end());
    free.resize(free.size() - rows);
    return taken;
  };
  ReferenceDraw draw(references_);
  std::int32_t spare = pool_.available() - owed_pages();
  PageId next = pool_.first_available();
  for (const auto& sequence : running_) {
    if (!may_launch(*sequence)) continue;
    const std::int32_t rounds = sequence->flight.rounds();
    RoundPlan::Item item{.id = sequence->id,
                         .first = rounds == 0,
                         .token = sequence->tokens.back(),
                         .position = sequence->computed + rounds * limits_.round_rows(),
                         .pages = {},
                         .states = {},
                         .references = {},
                         .grant = {}};
    std::vector<PageId> table = sequence->table;
    const std::size_t blocks =
        std::max(static_cast<std::size_t>(blocks_of(item.position + limits_.round_rows())), table.size() / depths);
    const auto missing = static_cast<std::int32_t>(blocks * depths - table.size());
    if (missing > spare) continue;
    spare -= missing;
    for (std::int32_t i = 0; i < missing; ++i, next = pool_.next_available(next)) item.grant.push_back(next);
    table.insert(table.end(), item.grant.begin(), item.grant.end());
    item.pages = by_depth(table, depths);
    item.states = rounds == 0 ? take_states() : sequence->flight.states;
    if (limits_.capture_depth > 0 && sequence->sparse(sequence->computed))
      for (std::int32_t row = 0; row < limits_.round_rows(); ++row)
        item.references.push_back(draw.take(limits_.list_pages_at(item.position + row)));
    plan.items.push_back(std::move(item));
  }
  return plan;
}

void Scheduler::launch(const RoundPlan& plan) {
  check(plan.number == launched_ && !plan.empty(), "round {} is launched where round {} is due", plan.number,
        launched_);
  for (const RoundPlan::Item& item : plan.items) launch_item(item);
  flights_.push_back(plan);
  ++launched_;
}

void Scheduler::launch_item(const RoundPlan::Item& item) {
  Sequence& sequence = running_sequence(item.id);
  check(may_launch(sequence) && item.first == (sequence.flight.rounds() == 0), "sequence {} cannot be launched",
        item.id);
  grant({item.id, item.grant});
  if (item.first) {
    check(std::equal(item.states.rbegin(), item.states.rend(), free_states_.rbegin()),
          "the round of sequence {} takes states that are not the free ones", item.id);
    free_states_.resize(free_states_.size() - item.states.size());
    sequence.flight.states = item.states;
  }
  // The rows' positions are the device's to know: the highest they can be, higher in every round, names the use.
  std::vector<ReferenceLease> leases;
  for (std::size_t row = 0; row < item.references.size(); ++row) {
    leases.push_back(
        references_.reserve(item.references[row], item.id, static_cast<std::uint64_t>(item.position) + row));
    references_.captured(leases.back());
  }
  sequence.flight.references.push_back(std::move(leases));
}

void Scheduler::land(std::uint64_t number, std::span<const RoundOutcome> outcomes) {
  check(!flights_.empty() && flights_.front().number == number, "round {} lands out of turn", number);
  const RoundPlan plan = std::move(flights_.front());
  flights_.pop_front();
  std::size_t landed = 0;
  for (const RoundPlan::Item& item : plan.items) {
    const auto found = std::find_if(leaving_.begin(), leaving_.end(), [&](const auto& s) { return s->id == item.id; });
    if (found == leaving_.end()) {
      const auto outcome =
          std::find_if(outcomes.begin(), outcomes.end(), [&](const auto& o) { return o.id == item.id; });
      check(outcome != outcomes.end(), "round {} has no outcome of sequence {}", number, item.id);
      land_item(running_sequence(item.id), *outcome);
      ++landed;
      continue;
    }
    ++stats_.discarded_rounds;
    release_flight(**found);
    if ((*found)->flight.rounds() > 0) continue;
    release_pages(**found);
    leaving_.erase(found);
  }
  check(landed == outcomes.size(), "{} outcomes of {} sequences that are alive", outcomes.size(), landed);
}

void Scheduler::land_item(Sequence& sequence, const RoundOutcome& outcome) {
  check(!outcome.tokens.empty() && std::ssize(outcome.tokens) <= limits_.round_rows(), "a round gave {} tokens",
        outcome.tokens.size());
  if (!sequence.flight.references.front().empty()) {
    stats_.captured_rows += limits_.round_rows();
    stats_.consumed_rows += limits_.round_rows() * (limits_.depths - limits_.capture_depth - 1);
  }
  release_flight(sequence);
  append(sequence, outcome.tokens);
  const auto answered = static_cast<std::int32_t>(outcome.tokens.size());
  leave(sequence, answered, limits_.depths, true, true);
  count_round(limits_.draft_tokens, answered, outcome.confirmed, outcome.finished);
  ++stats_.device_rounds;
  if (outcome.finished) return remove(sequence);
  // A younger round writes behind the computed positions: nothing of the table is given back before it lands.
  if (sequence.flight.rounds() == 0) release_pages(sequence, blocks_of(sequence.computed));
}

void Scheduler::release_flight(Sequence& sequence) {
  Sequence::Flight& flight = sequence.flight;
  check(flight.rounds() > 0, "sequence {} lands and has no round in flight", sequence.id);
  for (const ReferenceLease& lease : flight.references.front())
    check(references_.release(lease), "sequence {}: a reference of its round is stale", sequence.id);
  flight.references.erase(flight.references.begin());
  if (flight.rounds() > 0) return;
  free_states_.insert(free_states_.end(), flight.states.begin(), flight.states.end());
  flight.states.clear();
}

std::int32_t Scheduler::computed(SequenceId id) const {
  const auto found = alive_.find(id);
  check(found != alive_.end(), "sequence {} is not alive", id);
  return found->second->computed;
}

}  // namespace tessera
