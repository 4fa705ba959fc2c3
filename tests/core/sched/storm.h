// Random submits, cancels and endings on tiny pools, against a model of what each page holds.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "storm_flights.h"

namespace tessera {

class Storm : public StormFlights {
 public:
  Storm(std::uint64_t seed, std::int32_t depths, std::int32_t draft_tokens, std::int32_t draft_loops,
        std::int32_t rounds_in_flight = 1)
      : StormFlights(seed, depths, draft_tokens, draft_loops, rounds_in_flight) {}

  void run(int steps) {
    Scheduler scheduler(limits_, pool_, below(2) ? std::optional<std::uint64_t>(1) : std::nullopt);
    for (int i = 0; i < steps; ++i) {
      if (below(3) == 0) submit(scheduler);
      if (below(12) == 0) cancel(scheduler);
      step(scheduler);
    }
    for (int i = 0; !scheduler.idle() || scheduler.in_flight() > 0; ++i) {
      REQUIRE(i < 20000);
      step(scheduler);
    }
    CHECK((live_.empty() && leaving_.empty()));
    CHECK(pool_.in_use() == 0);
    CHECK(scheduler.references().outstanding() == 0);
    CHECK(scheduler.references().outstanding_pages() == 0);
    stats = scheduler.stats();
    recalls = recalls_;
    CHECK(stats.device_rounds == landed_);
    CHECK(stats.discarded_rounds == discarded_);
  }

  SchedulerStats stats;
  std::int64_t recalls = 0;

 private:
  void submit(Scheduler& scheduler) {
    std::vector<SequenceSpec> specs;
    const std::int32_t count = 1 + below(2);
    std::vector<std::int32_t> prompt;
    // Three families of prompts, so that prefixes of many lengths are shared.
    const std::int32_t family = below(3), length = 1 + below(70), own = below(20);
    for (std::int32_t p = 0; p < length; ++p) prompt.push_back(p < length - own ? family * 100 + p : below(2));
    LoopParams rule{.max = limits_.depths - below(2) * below(limits_.depths)};
    if (below(2)) rule.exit_threshold = 0.5f, rule.min = 1 + below(rule.max);
    if (limits_.depths > 1 || limits_.sparse_tables) rule.decode_tail = below(3) == 0 ? below(length + 1) : below(2);
    if (limits_.sparse_decode() && below(3) != 0) rule.sparse_from = below(2) * below(100);
    const bool greedy = flies() && below(2) != 0;
    if (greedy && below(4) != 0) rule.max = limits_.depths, rule.exit_threshold = 1, rule.min = 1;  // it may fly
    const bool every = limits_.draft_loops > 0 && !greedy && below(2) != 0;
    for (std::int32_t i = 0; i < count; ++i) {
      specs.push_back(
          {next_id_ + static_cast<SequenceId>(i), prompt, 1 + below(flies() ? 70 : 35), rule, every, greedy});
    }
    const bool fits = std::all_of(specs.begin(), specs.end(), [&](const SequenceSpec& spec) {
      const std::int32_t total = length + spec.max_tokens;
      return total <= limits_.max_context && (total + 15) / 16 * limits_.depths <= pool_.size();
    });
    const bool room = scheduler.waiting() + count <= limits_.max_queue;
    const Status status = scheduler.submit(specs);
    REQUIRE(status.code == (!fits ? Code::invalid_argument : !room ? Code::resource_exhausted : Code::ok));
    if (!status.ok()) return;
    for (const SequenceSpec& spec : specs) {
      Model& model = live_[spec.id];
      model = {
          .tokens = spec.prompt, .prompt = prompt.size(), .max_tokens = spec.max_tokens, .table = {}, .rule = rule};
      model.draft_every_row = every, model.greedy = greedy;
      model.loops.assign(static_cast<std::size_t>(model.decode_from()), rule.max);
    }
    next_id_ += static_cast<SequenceId>(count);
  }

  void step(Scheduler& scheduler) {
    fly(scheduler);
    const StepPlan plan = scheduler.plan();
    REQUIRE(plan.dump() == scheduler.plan().dump());
    if (plan.recall) return recall(scheduler, plan);
    recalled_ = false;
    check_order(plan);
    if (plan.empty() && scheduler.in_flight() > 0) return land(scheduler);
    begin(plan);
    std::vector<ExitOutcome> exits;
    std::vector<StepOutcome> outcomes;
    for (const PlanSlice& slice : plan.slices) {
      if (slice.exit) exits.push_back(judge(slice));
      if (!(slice.exit ? exits.back().left : slice.last_pass())) continue;
      if (slice.role == SliceRole::draft) {
        draft(slice, outcomes);
      } else if (slice.role == SliceRole::verify) {
        outcomes.push_back(verify(slice));
      } else {
        leave(slice, slice.num_rows());
        if (slice.wants_logits) outcomes.push_back(sample(slice.id));
      }
    }
    if (below(2)) std::reverse(outcomes.begin(), outcomes.end());  // any order is allowed
    scheduler.commit(plan, outcomes, exits);
    for (const StepOutcome& outcome : outcomes) {
      if (outcome.finished) end(outcome.id);
    }
    check_references(scheduler);
    REQUIRE(scheduler.running() == std::count_if(live_.begin(), live_.end(), [](auto& m) { return m.second.running; }));
    REQUIRE(scheduler.running() + scheduler.waiting() == std::ssize(live_));
    REQUIRE(scheduler.running() <= limits_.max_batch);
  }

  /// Everything up to where the rows have run.
  void begin(const StepPlan& plan) {
    for (const SequenceId id : plan.preempted) {
      Model& model = live_.at(id);
      model.running = false;
      model.computed = 0;
      model.table.clear();
    }
    for (const auto& admission : plan.admitted) {
      Model& model = live_.at(admission.id);
      model.running = true;
      model.computed = static_cast<std::int32_t>(admission.hits.size()) / limits_.depths * 16;
      REQUIRE(model.computed < static_cast<std::int32_t>(model.tokens.size()));
    }
    for (const PlanSlice& slice : plan.slices) live_.at(slice.id).table = slice.pages;
    for (const PlanSlice& slice : plan.slices) compute(slice), track_references(slice);
    check_states();
    // What preempted rows held is free only for the next plan.
    for (const SequenceId id : plan.preempted) live_.at(id).end_round();
  }

  /// Decode rows ride, the oldest progresses, preemption is from the young end, admission from the old one. Sequences
  /// with rounds in flight ride in no step and are not preempted.
  void check_order(const StepPlan& plan) {
    std::map<SequenceId, std::size_t> place;
    for (std::size_t i = 0; i < plan.slices.size(); ++i) {
      REQUIRE(place.emplace(plan.slices[i].id, i).second);
    }
    if (!live_.empty() && !live_.begin()->second.flies()) REQUIRE(place.contains(live_.begin()->first));
    for (const auto& [id, model] : live_) {
      if (model.flies()) REQUIRE_FALSE(place.contains(id));
      if (model.pass_rows > 0 && std::count(plan.preempted.begin(), plan.preempted.end(), id) == 0)
        REQUIRE(place.contains(id));  // rows between passes ride in every step
    }
    std::vector<SequenceId> running, waiting, decodes;
    const std::set<SequenceId> preempted(plan.preempted.begin(), plan.preempted.end());
    for (const auto& [id, model] : live_) {
      (model.running ? running : waiting).push_back(id);
      if (!model.running || model.flies() || preempted.contains(id)) continue;
      const std::int32_t next = model.computed;
      const bool undecided = next >= model.decode_from() && next >= static_cast<std::int32_t>(model.loops.size());
      const bool last = next == static_cast<std::int32_t>(model.tokens.size()) - 1;
      if (limits_.depths > 1 ? undecided : last) decodes.push_back(id);
    }
    if (!running.empty() && !waiting.empty()) REQUIRE(running.back() < waiting.front());
    REQUIRE(plan.slices.size() >= decodes.size());
    for (std::size_t i = 0; i < decodes.size(); ++i) {
      REQUIRE(plan.slices[i].id == decodes[i]);
      if (plan.slices[i].role != SliceRole::verify) REQUIRE(plan.slices[i].tokens.size() == 1);
      REQUIRE(plan.slices[i].num_rows() <= limits_.round_rows());
      if (limits_.depths == 1) REQUIRE(plan.slices[i].wants_logits);
    }
    for (const SequenceId id : plan.preempted) {
      REQUIRE(!running.empty());
      REQUIRE(running.back() == id);
      REQUIRE_FALSE(live_.at(id).flies());
      running.pop_back();
      REQUIRE_FALSE(place.contains(id));
    }
    REQUIRE((plan.preempted.empty() || plan.admitted.empty()));
    for (std::size_t i = 0; i < plan.admitted.size(); ++i) REQUIRE(plan.admitted[i].id == waiting.at(i));
    REQUIRE(plan.num_rows <= limits_.step_tokens);
  }

  /// Writes the rows' KV at their depth, then reads everything there that the last row attends to.
  void compute(const PlanSlice& slice) {
    Model& model = live_.at(slice.id);
    const auto depths = static_cast<std::size_t>(limits_.depths), depth = static_cast<std::size_t>(slice.depth);
    const std::size_t blocks = slice.pages.size() / depths;
    const auto first = static_cast<std::size_t>(slice.first_position);
    const std::size_t end = first + slice.tokens.size();
    const bool plain = slice.role == SliceRole::plain;
    begin_round(slice, model);
    REQUIRE(slice.first_position == model.computed + (slice.role == SliceRole::draft ? model.drafted : 0));
    REQUIRE(slice.depth == model.pass_depth);
    if (model.pass_rows > 0) REQUIRE(std::ssize(slice.tokens) == model.pass_rows);
    REQUIRE(end <= model.tokens.size() + model.candidates.size());
    if (plain) REQUIRE(blocks == (end + 15) / 16);
    if (plain) REQUIRE(slice.wants_logits == (end == model.tokens.size()));
    if (limits_.chunk_cap > 0 && plain) REQUIRE(std::ssize(slice.tokens) <= limits_.chunk_cap);
    const auto known = model.marked(end, false);
    REQUIRE(std::equal(slice.tokens.begin(), slice.tokens.end(), known.begin() + slice.first_position));
    for (std::size_t p = first; p < end; ++p)
      if (p < model.loops.size()) REQUIRE(slice.loops == model.loops[p]);
    run_rows(slice.id, model, slice.pages, depth, first, end);
    take_states(slice, model);
    model.pass_rows = static_cast<std::int32_t>(end - first);
    ++model.pass_depth;
  }

  /// A row keeps its state from its first pass on.
  void take_states(const PlanSlice& slice, Model& model) const {
    if (slice.depth == 0) {
      model.states.insert(model.states.end(), slice.states.begin(), slice.states.end());
    } else {
      REQUIRE(slice.num_rows() <= std::ssize(model.states));
      REQUIRE(std::equal(slice.states.rbegin(), slice.states.rend(), model.states.rbegin()));
    }
  }

  void begin_round(const PlanSlice& slice, Model& model) {
    REQUIRE((slice.role == SliceRole::plain) <= (model.round_rows == 0));
    const bool last = slice.first_position + 1 == std::ssize(model.tokens) && slice.num_rows() == 1;
    if (model.draft_every_row && last && slice.first_position >= static_cast<std::int32_t>(model.prompt) &&
        speculates(limits_, model.rule))
      REQUIRE(slice.role != SliceRole::plain);
    if (slice.role == SliceRole::plain || model.round_rows > 0) return;
    REQUIRE(model.rule.exit_threshold >= 1);
    REQUIRE(slice.first_position + 1 == std::ssize(model.tokens));
    model.round_rows = slice.role == SliceRole::draft ? slice.round_rows : slice.num_rows();
    REQUIRE(model.round_rows > (model.draft_every_row ? 0 : 1));
    REQUIRE(std::ssize(model.tokens) + model.round_rows - 1 <
            static_cast<std::int32_t>(model.prompt) + model.max_tokens);
    if (slice.role == SliceRole::verify) model.candidates.assign(slice.tokens.begin() + 1, slice.tokens.end());
  }

  /// A row is captured once, at its depth, and deeper passes find it in the same slot.
  void track_references(const PlanSlice& slice) {
    Model& model = live_.at(slice.id);
    if (limits_.sparse_tables) {  // a sparse row has a table, and so a slice, of its own
      REQUIRE((slice.mode == sdk::RowMode::select) == model.sparse(slice.first_position));
      REQUIRE((slice.num_rows() == 1 || !model.sparse(slice.first_position + slice.num_rows() - 1)));
      return;
    }
    for (std::int32_t row = 0; row < slice.num_rows(); ++row) {
      const std::int32_t position = slice.first_position + row;
      const bool sparse = limits_.capture_depth > 0 && model.sparse(position) && slice.depth >= limits_.capture_depth &&
                          (slice.depth > limits_.capture_depth ||
                           model.loops_of(100)[static_cast<std::size_t>(position)] > slice.depth + 1);
      REQUIRE((slice.mode != sdk::RowMode::dense) == sparse);
      if (!sparse) continue;
      const RowReference& reference = slice.references.at(static_cast<std::size_t>(row));
      const std::int32_t slot = reference.slot;
      REQUIRE(std::ssize(reference.pages) == limits_.list_pages_at(position));
      lists_.see(reference, {slice.id, position}, slice.mode == sdk::RowMode::capture);
      const std::pair holder{slice.id, position};
      if (slice.mode == sdk::RowMode::capture) {
        captured_[slot] = holder;
        model.references.push_back(reference);
      }
      REQUIRE(captured_[slot] == holder);
      REQUIRE(uses_of(slot) == 1);
    }
  }

  void draft(const PlanSlice& slice, std::vector<StepOutcome>& outcomes) {
    Model& model = live_.at(slice.id);
    REQUIRE(slice.candidates == model.candidates);
    const bool last = model.drafted + 1 == model.round_rows;
    REQUIRE(slice.wants_logits == (!last || model.draft_every_row));
    if (slice.wants_logits) {
      const std::int32_t token = guess_after(model, static_cast<std::size_t>(slice.first_position));
      if (!last) model.candidates.push_back(token);
      outcomes.push_back({slice.id, {token}, false});
    }
    model.pass_rows = model.pass_depth = 0;
    if (++model.drafted == model.round_rows) model.pass_rows = model.round_rows, model.pass_depth = slice.loops;
  }

  StepOutcome verify(const PlanSlice& slice) {
    Model& model = live_.at(slice.id);
    StepOutcome outcome{slice.id, {}, false};
    for (std::int32_t row = 0; row < slice.num_rows(); ++row) {
      outcome.tokens.push_back(token_after(model, static_cast<std::size_t>(slice.first_position + row)));
      outcome.finished = ends(model, outcome.tokens.size());
      if (outcome.finished || row + 1 == slice.num_rows() ||
          outcome.tokens.back() != slice.tokens[static_cast<std::size_t>(row) + 1])
        break;
    }
    leave(slice, static_cast<std::int32_t>(outcome.tokens.size()));
    model.end_round();
    model.tokens.insert(model.tokens.end(), outcome.tokens.begin(), outcome.tokens.end());
    return outcome;
  }

  /// A function of what was computed, as the exit gate is.
  ExitOutcome judge(const PlanSlice& slice) {
    const Model& model = live_.at(slice.id);
    REQUIRE(slice.tokens.size() == 1);
    REQUIRE(slice.exit->remaining == 1.0f / static_cast<float>(1 << slice.depth));
    const std::uint64_t seen =
        made(model, static_cast<std::size_t>(slice.first_position), static_cast<std::size_t>(slice.depth));
    const bool enough = slice.depth + 1 >= slice.exit->min_loops && (seen >> 33) % 3 == 0;
    return {slice.id, enough || slice.last_pass(), slice.exit->remaining / 2};
  }

  /// Later rows find the last loop's KV in the planes that were not reached.
  void leave(const PlanSlice& slice, std::int32_t rows) {
    Model& model = live_.at(slice.id);
    const auto first = static_cast<std::size_t>(slice.first_position), count = static_cast<std::size_t>(rows);
    if (first >= model.loops.size()) model.loops.resize(model.loops.size() + count, slice.depth + 1);
    for (std::size_t p = first; p < first + count; ++p)
      for (std::int32_t depth = slice.depth + 1; depth < slice.planes; ++depth)
        slot_of(slice.pages, static_cast<std::size_t>(depth), p) =
            slot_of(slice.pages, static_cast<std::size_t>(slice.depth), p);
    model.computed += rows;
    model.end_pass();
    if (slice.role == SliceRole::verify) trim(model);
  }

  StepOutcome sample(SequenceId id) {
    Model& model = live_.at(id);
    model.tokens.push_back(token_after(model, model.tokens.size() - 1));
    return {id, {model.tokens.back()}, ends(model, 0)};
  }

  std::map<std::int32_t, std::pair<SequenceId, std::int32_t>> captured_;  // by slot: whose row
  ListHolders lists_;
};

}  // namespace tessera
