// Rounds on the device, launched and landed at random, against a model of a device that knows its own frontiers.
#pragma once
#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "storm_world.h"

namespace tessera {

class StormFlights : public StormWorld {
 protected:
  using StormWorld::StormWorld;

  /// The part of a driver before a step. The order of launches, landings and cancels is any that the contract allows.
  void fly(Scheduler& scheduler) {
    if (!flies()) return;
    land_leaving(scheduler);
    const bool full = scheduler.in_flight() == limits_.rounds_in_flight;
    if (full || (scheduler.in_flight() > 0 && below(6) == 0)) land(scheduler);
    while (!recalled_ && below(4) != 0 && launch(scheduler)) {
      if (below(12) == 0) cancel(scheduler);
    }
    land_leaving(scheduler);
  }

  /// Nothing else is in a plan that asks for the rounds in flight, and nobody flies before the next one.
  void recall(Scheduler& scheduler, const StepPlan& plan) {
    REQUIRE(scheduler.in_flight() > 0);
    REQUIRE((plan.empty() && plan.preempted.empty() && plan.admitted.empty() && plan.grants.empty()));
    while (scheduler.in_flight() > 0) land(scheduler);
    ++recalls_;
    recalled_ = true;
  }

  void cancel(Scheduler& scheduler) {
    const SequenceId id = static_cast<SequenceId>(below(static_cast<std::int32_t>(next_id_) + 1));
    const bool live = live_.contains(id);
    REQUIRE(scheduler.alive(id) == live);
    REQUIRE(scheduler.cancel(id) == live);
    if (live) end(id);
    check_references(scheduler);
  }

  void land(Scheduler& scheduler) {
    const Flight flight = std::move(flights_.front());
    flights_.pop_front();
    std::vector<RoundOutcome> outcomes;
    for (const Answer& answer : flight.answers) {
      if (const auto found = leaving_.find(answer.id); found != leaving_.end()) {
        ++discarded_;
        found->second.in_flight.pop_front();
        if (!found->second.flies()) leaving_.erase(found);
        continue;
      }
      outcomes.push_back(take_answer(answer));
    }
    if (below(2)) std::reverse(outcomes.begin(), outcomes.end());  // any order is allowed
    scheduler.land(flight.number, outcomes);
    landed_ += std::ssize(outcomes);
    for (const RoundOutcome& outcome : outcomes) {
      if (outcome.finished)
        end(outcome.id);
      else
        REQUIRE(scheduler.computed(outcome.id) == live_.at(outcome.id).computed);
    }
    check_references(scheduler);
  }

  SequenceId next_id_ = 1;
  bool recalled_ = false;
  std::int64_t recalls_ = 0, landed_ = 0, discarded_ = 0;

 private:
  struct Answer {
    SequenceId id;
    std::vector<std::int32_t> tokens;  // that the device drew: confirmed candidates and one more
  };
  struct Flight {
    std::uint64_t number;
    std::vector<Answer> answers;
  };
  struct Frontier {  // of a sequence: its last token, and where
    std::int32_t token, position;
  };

  /// As long as sequences that ended have rounds in flight, nothing may be planned.
  void land_leaving(Scheduler& scheduler) {
    while (scheduler.leaving() > 0) {
      REQUIRE(scheduler.plan_round().empty());
      land(scheduler);
    }
  }

  bool launch(Scheduler& scheduler) {
    const RoundPlan plan = scheduler.plan_round();
    if (plan.empty()) return false;
    REQUIRE(scheduler.leaving() == 0);
    REQUIRE(scheduler.in_flight() < limits_.rounds_in_flight);
    for (const RoundPlan::Item& item : plan.items) take(item);
    scheduler.launch(plan);
    check_references(scheduler);
    check_states();
    Flight flight{plan.number, {}};
    for (const RoundPlan::Item& item : plan.items) flight.answers.push_back(execute(item));
    flights_.push_back(std::move(flight));
    return true;
  }

  /// What the host promises of a round, and what the round holds from now on.
  void take(const RoundPlan::Item& item) {
    Model& model = live_.at(item.id);
    const std::int32_t rows = limits_.round_rows(), rounds = static_cast<std::int32_t>(model.in_flight.size());
    REQUIRE(model.running);
    REQUIRE(model.greedy);
    REQUIRE((speculates(limits_, model.rule) && model.rule.max == limits_.depths));
    REQUIRE((model.pass_rows == 0 && model.round_rows == 0));
    REQUIRE(item.first == (rounds == 0));
    REQUIRE(item.position == model.computed + rounds * rows);
    REQUIRE(std::ssize(model.tokens) + (rounds + 1) * rows <=
            static_cast<std::int32_t>(model.prompt) + model.max_tokens);
    REQUIRE(std::ssize(item.pages) / limits_.depths * 16 >= item.position + rows);
    REQUIRE(std::ssize(item.states) == rows);
    if (!item.first) REQUIRE(item.states == model.states);
    model.states = item.states;
    model.table = item.pages;
    model.in_flight.push_back(item.references);
    for (std::size_t row = 0; row < item.references.size(); ++row) {
      const RowReference& reference = item.references[row];
      REQUIRE(uses_of(reference.slot) == 1);
      REQUIRE(std::ssize(reference.pages) == limits_.list_pages_at(item.position + static_cast<std::int32_t>(row)));
    }
  }

  /// The device runs the round from its own frontier.
  Answer execute(const RoundPlan::Item& item) {
    Frontier& frontier = frontiers_[item.states[0]];
    if (item.first) {
      frontier = {item.token, item.position};
      ahead_[item.id] = live_.at(item.id);
    }
    Model& model = ahead_.at(item.id);
    // Were the slot another's, or were rounds lost, the frontier would not be where the sequence is.
    REQUIRE(frontier.position + 1 == std::ssize(model.tokens));
    REQUIRE(frontier.token == model.tokens.back());
    REQUIRE(item.position >= frontier.position);
    const std::int32_t rows = limits_.round_rows();
    const bool sparse = limits_.capture_depth > 0 && model.sparse(frontier.position);
    REQUIRE(std::ssize(item.references) == (sparse ? rows : 0));
    if (limits_.capture_depth > 0) REQUIRE(model.sparse(frontier.position + rows - 1) == sparse);
    const auto first = static_cast<std::size_t>(frontier.position);
    draft(item, model, first);
    const Answer answer{item.id, confirm(model, first)};
    const auto confirmed = static_cast<std::int32_t>(answer.tokens.size());
    model.candidates.clear();
    model.tokens.insert(model.tokens.end(), answer.tokens.begin(), answer.tokens.end());
    frontier = {model.tokens.back(), frontier.position + confirmed};
    return answer;
  }

  /// Rows one by one through the first loops, then all of them through the others.
  void draft(const RoundPlan::Item& item, Model& model, std::size_t first) {
    const auto rows = static_cast<std::size_t>(limits_.round_rows());
    const auto loops = static_cast<std::size_t>(limits_.draft_loops), depths = static_cast<std::size_t>(limits_.depths);
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t depth = 0; depth < loops; ++depth)
        run_rows(item.id, model, item.pages, depth, first + row, first + row + 1);
      if (row + 1 < rows) model.candidates.push_back(guess_after(model, first + row));
    }
    for (std::size_t depth = loops; depth < depths; ++depth)
      run_rows(item.id, model, item.pages, depth, first, first + rows);
  }

  std::vector<std::int32_t> confirm(const Model& model, std::size_t first) const {
    std::vector<std::int32_t> tokens;
    for (std::size_t row = 0; row <= model.candidates.size(); ++row) {
      tokens.push_back(token_after(model, first + row));
      if (row == model.candidates.size() || tokens.back() != model.candidates[row]) break;
    }
    return tokens;
  }

  /// What the host makes of an answer: it may end the sequence anywhere in it.
  RoundOutcome take_answer(const Answer& answer) {
    Model& model = live_.at(answer.id);
    RoundOutcome outcome{answer.id, {}, false, static_cast<std::int32_t>(answer.tokens.size()) - 1};
    for (std::size_t i = 0; i < answer.tokens.size() && !outcome.finished; ++i) {
      outcome.tokens.push_back(answer.tokens[i]);
      outcome.finished = ends(model, outcome.tokens.size());
    }
    model.tokens.insert(model.tokens.end(), outcome.tokens.begin(), outcome.tokens.end());
    model.computed += static_cast<std::int32_t>(outcome.tokens.size());
    model.loops.resize(static_cast<std::size_t>(model.computed), limits_.depths);
    model.in_flight.pop_front();
    if (model.flies()) return outcome;
    model.states.clear();
    trim(model);
    return outcome;
  }

  std::deque<Flight> flights_;                  // oldest first
  std::map<std::int32_t, Frontier> frontiers_;  // of the device, by the first state of a sequence
  std::map<SequenceId, Model> ahead_;           // the sequences as the device has made them
};

}  // namespace tessera
