// Random submits, cancels and endings on tiny pools, against a model of what each page holds.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/random.h"
#include "sched/scheduler.h"

namespace tessera {
namespace {

struct Model {  // of one live sequence
  std::vector<std::int32_t> tokens;
  std::size_t prompt = 0;
  std::int32_t max_tokens = 0;
  std::int32_t computed = 0;
  std::vector<PageId> table;  // of its last slice
  bool running = false;
  LoopParams rule{};
  std::vector<std::int32_t> loops{};  // that each decided position runs
  std::int32_t pass_rows = 0;         // between two passes
  std::int32_t pass_depth = 0;

  std::int32_t decode_from() const { return static_cast<std::int32_t>(prompt) - rule.decode_tail; }
};

/// What the KV of the last of `tokens` depends on: them, the loops of those before it, and its own depth.
std::uint64_t content(std::span<const std::int32_t> tokens, std::span<const std::int32_t> loops, std::size_t depth) {
  std::uint64_t hash = 0x9E3779B97F4A7C15U + depth;
  const auto mix = [&](std::int32_t value) { hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x100000001B3U + 1; };
  for (const std::int32_t token : tokens) mix(token);
  for (const std::int32_t count : loops) mix(count);
  return hash;
}

class Storm {
 public:
  Storm(std::uint64_t seed, std::int32_t depths)
      : random_(seed),
        limits_{.max_batch = 1 + below(5),
                .step_tokens = 0,
                .chunk_cap = below(2) * (1 + below(24)),
                .max_queue = 1 + below(12),
                .max_context = 100,
                .depths = depths,
                .prefix_cache = below(4) != 0},
        pool_(depths * (5 + below(9)) + below(depths), below(2) ? std::optional(seed) : std::nullopt) {
    limits_.step_tokens = limits_.max_batch + below(60);
    held_.resize(static_cast<std::size_t>(pool_.size()));
  }

  void run(int steps) {
    Scheduler scheduler(limits_, pool_);
    for (int i = 0; i < steps; ++i) {
      if (below(3) == 0) submit(scheduler);
      if (below(12) == 0) cancel(scheduler);
      step(scheduler);
    }
    for (int i = 0; !scheduler.idle(); ++i) {
      REQUIRE(i < 20000);
      step(scheduler);
    }
    CHECK(live_.empty());
    CHECK(pool_.in_use() == 0);
    stats = scheduler.stats();
  }

  SchedulerStats stats;

 private:
  std::int32_t below(std::int32_t n) { return static_cast<std::int32_t>(random_.below(static_cast<std::uint32_t>(n))); }

  void submit(Scheduler& scheduler) {
    std::vector<SequenceSpec> specs;
    const std::int32_t count = 1 + below(2);
    std::vector<std::int32_t> prompt;
    // Three families of prompts, so that prefixes of many lengths are shared.
    const std::int32_t family = below(3), length = 1 + below(70), own = below(20);
    for (std::int32_t p = 0; p < length; ++p) prompt.push_back(p < length - own ? family * 100 + p : below(2));
    LoopParams rule{.max = limits_.depths - below(2) * below(limits_.depths)};
    if (below(2)) rule.exit_threshold = 0.5f, rule.min = 1 + below(rule.max);
    if (limits_.depths > 1) rule.decode_tail = below(3) == 0 ? below(length + 1) : below(2);
    for (std::int32_t i = 0; i < count; ++i) {
      specs.push_back({next_id_ + static_cast<SequenceId>(i), prompt, 1 + below(35), rule});
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
      model.loops.assign(static_cast<std::size_t>(model.decode_from()), rule.max);
    }
    next_id_ += static_cast<SequenceId>(count);
  }

  void cancel(Scheduler& scheduler) {
    const SequenceId id = static_cast<SequenceId>(below(static_cast<std::int32_t>(next_id_) + 1));
    REQUIRE(scheduler.alive(id) == live_.contains(id));
    REQUIRE(scheduler.cancel(id) == (live_.erase(id) == 1));
    check_references();
  }

  void step(Scheduler& scheduler) {
    const StepPlan plan = scheduler.plan();
    REQUIRE(plan.dump() == scheduler.plan().dump());
    check_order(plan);
    for (const SequenceId id : plan.preempted) {
      Model& model = live_.at(id);
      model.running = false;
      model.computed = 0;
      model.pass_rows = model.pass_depth = 0;
      model.table.clear();
    }
    for (const auto& admission : plan.admitted) {
      Model& model = live_.at(admission.id);
      model.running = true;
      model.computed = static_cast<std::int32_t>(admission.hits.size()) / limits_.depths * 16;
      REQUIRE(model.computed < static_cast<std::int32_t>(model.tokens.size()));
    }
    for (const PlanSlice& slice : plan.slices) live_.at(slice.id).table = slice.pages;
    std::vector<ExitOutcome> exits;
    std::vector<StepOutcome> outcomes;
    for (const PlanSlice& slice : plan.slices) compute(slice);
    for (const PlanSlice& slice : plan.slices) {
      if (slice.exit) exits.push_back(judge(slice));
      if (!(slice.exit ? exits.back().left : slice.last_pass())) continue;
      leave(slice);
      if (slice.wants_logits) outcomes.push_back(sample(slice.id));
    }
    if (below(2)) std::reverse(outcomes.begin(), outcomes.end());  // any order is allowed
    check_states(plan);
    scheduler.commit(plan, outcomes, exits);
    for (const StepOutcome& outcome : outcomes) {
      if (outcome.finished) live_.erase(outcome.id);
    }
    check_references();
    REQUIRE(scheduler.running() == std::count_if(live_.begin(), live_.end(), [](auto& m) { return m.second.running; }));
    REQUIRE(scheduler.running() + scheduler.waiting() == std::ssize(live_));
    REQUIRE(scheduler.running() <= limits_.max_batch);
  }

  /// Decode rows ride, the oldest progresses, preemption is from the young end, admission from the old one.
  void check_order(const StepPlan& plan) {
    std::map<SequenceId, std::size_t> place;
    for (std::size_t i = 0; i < plan.slices.size(); ++i) {
      REQUIRE(place.emplace(plan.slices[i].id, i).second);
    }
    if (!live_.empty()) REQUIRE(place.contains(live_.begin()->first));
    for (const auto& [id, model] : live_)
      if (model.pass_rows > 0 && std::count(plan.preempted.begin(), plan.preempted.end(), id) == 0)
        REQUIRE(place.contains(id));  // rows between passes ride in every step
    std::vector<SequenceId> running, waiting, decodes;
    const std::set<SequenceId> preempted(plan.preempted.begin(), plan.preempted.end());
    for (const auto& [id, model] : live_) {
      (model.running ? running : waiting).push_back(id);
      if (!model.running || preempted.contains(id)) continue;
      const std::int32_t next = model.computed;
      const bool undecided = next >= model.decode_from() && next >= static_cast<std::int32_t>(model.loops.size());
      const bool last = next == static_cast<std::int32_t>(model.tokens.size()) - 1;
      if (limits_.depths > 1 ? undecided : last) decodes.push_back(id);
    }
    if (!running.empty() && !waiting.empty()) REQUIRE(running.back() < waiting.front());
    REQUIRE(plan.slices.size() >= decodes.size());
    for (std::size_t i = 0; i < decodes.size(); ++i) {
      REQUIRE(plan.slices[i].id == decodes[i]);
      REQUIRE(plan.slices[i].tokens.size() == 1);
      if (limits_.depths == 1) REQUIRE(plan.slices[i].wants_logits);
    }
    for (const SequenceId id : plan.preempted) {
      REQUIRE(!running.empty());
      REQUIRE(running.back() == id);
      running.pop_back();
      REQUIRE_FALSE(place.contains(id));
    }
    REQUIRE((plan.preempted.empty() || plan.admitted.empty()));
    for (std::size_t i = 0; i < plan.admitted.size(); ++i) REQUIRE(plan.admitted[i].id == waiting.at(i));
    REQUIRE(plan.num_rows <= limits_.step_tokens);
  }

  std::uint64_t& slot_of(const PlanSlice& slice, std::size_t depth, std::size_t position) {
    const std::size_t blocks = slice.pages.size() / static_cast<std::size_t>(limits_.depths);
    return held_.at(static_cast<std::size_t>(slice.pages[depth * blocks + position / 16]))[position % 16];
  }

  /// Of a plain model there is nothing to tell.
  std::span<const std::int32_t> loops_before(const Model& model, std::size_t position) const {
    return limits_.depths == 1 ? std::span<const std::int32_t>{} : std::span(model.loops).first(position);
  }

  /// KV of a position in a plane, once it has left.
  std::uint64_t wanted(const Model& model, std::size_t position, std::size_t depth) const {
    if (position < model.loops.size()) depth = std::min(depth, static_cast<std::size_t>(model.loops[position]) - 1);
    return content(std::span(model.tokens).first(position + 1), loops_before(model, position), depth);
  }

  /// Writes the rows' KV at their depth, then reads everything there that the last row attends to.
  void compute(const PlanSlice& slice) {
    Model& model = live_.at(slice.id);
    const auto depths = static_cast<std::size_t>(limits_.depths), depth = static_cast<std::size_t>(slice.depth);
    const std::size_t blocks = slice.pages.size() / depths;
    const auto first = static_cast<std::size_t>(slice.first_position);
    const std::size_t end = first + slice.tokens.size();
    REQUIRE(slice.first_position == model.computed);
    REQUIRE(slice.depth == model.pass_depth);
    if (model.pass_rows > 0) REQUIRE(std::ssize(slice.tokens) == model.pass_rows);
    REQUIRE(end <= model.tokens.size());
    REQUIRE(blocks == (end + 15) / 16);
    REQUIRE(slice.wants_logits == (end == model.tokens.size()));
    if (limits_.chunk_cap > 0) REQUIRE(std::ssize(slice.tokens) <= limits_.chunk_cap);
    REQUIRE(std::equal(slice.tokens.begin(), slice.tokens.end(), model.tokens.begin() + slice.first_position));
    for (std::size_t p = first; p < end; ++p)
      if (p < model.loops.size()) REQUIRE(slice.loops == model.loops[p]);
    for (std::size_t p = 0; p < end; ++p) {
      std::uint64_t& slot = slot_of(slice, depth, p);
      if (p >= first) {
        if (p == first || p % 16 == 0) REQUIRE(tables_with(slice.pages[depth * blocks + p / 16]) == 1);
        slot = content(std::span(model.tokens).first(p + 1), loops_before(model, p), depth);
      } else if (slot != wanted(model, p, depth)) {
        FAIL("sequence ", slice.id, " reads other KV at position ", p, ", depth ", depth);
      }
    }
    model.pass_rows = static_cast<std::int32_t>(end - first);
    ++model.pass_depth;
  }

  /// A function of what was computed, as the exit gate is.
  ExitOutcome judge(const PlanSlice& slice) {
    const Model& model = live_.at(slice.id);
    const auto end = static_cast<std::size_t>(slice.first_position) + 1;
    REQUIRE(slice.tokens.size() == 1);
    REQUIRE(slice.exit->remaining == 1.0f / static_cast<float>(1 << slice.depth));
    const std::uint64_t seen = content(std::span(model.tokens).first(end), loops_before(model, end - 1),
                                       static_cast<std::size_t>(slice.depth));
    const bool enough = slice.depth + 1 >= slice.exit->min_loops && (seen >> 33) % 3 == 0;
    return {slice.id, enough || slice.last_pass(), slice.exit->remaining / 2};
  }

  /// Later rows find the last loop's KV in the planes that were not reached.
  void leave(const PlanSlice& slice) {
    Model& model = live_.at(slice.id);
    const auto first = static_cast<std::size_t>(slice.first_position);
    if (first >= model.loops.size()) model.loops.push_back(slice.depth + 1);
    for (std::size_t p = first; p < first + slice.tokens.size(); ++p)
      for (std::int32_t depth = slice.depth + 1; depth < slice.planes; ++depth)
        slot_of(slice, static_cast<std::size_t>(depth), p) = slot_of(slice, static_cast<std::size_t>(slice.depth), p);
    model.computed += model.pass_rows;
    model.pass_rows = model.pass_depth = 0;
  }

  /// No row of the state bank belongs to two rows.
  void check_states(const StepPlan& plan) {
    std::set<std::int32_t> states;
    for (const PlanSlice& slice : plan.slices)
      for (const std::int32_t state : slice.states) {
        REQUIRE(states.insert(state).second);
        REQUIRE(state < 2 * limits_.step_tokens);
      }
  }

  std::int64_t tables_with(PageId page) const {
    std::int64_t count = 0;
    for (const auto& [id, model] : live_) count += std::count(model.table.begin(), model.table.end(), page);
    return count;
  }

  StepOutcome sample(SequenceId id) {
    Model& model = live_.at(id);
    // A function of the tokens alone, as greedy sampling is: equal prefixes go on equally.
    model.tokens.push_back(
        static_cast<std::int32_t>(content(model.tokens, loops_before(model, model.loops.size()), 0) >> 40 & 1));
    const auto generated = static_cast<std::int32_t>(model.tokens.size() - model.prompt);
    return {id, model.tokens.back(), generated == model.max_tokens || below(30) == 0};
  }

  void check_references() {
    std::map<PageId, std::int32_t> count;
    for (const auto& [id, model] : live_) {
      for (const PageId page : model.table) ++count[page];
    }
    for (PageId page = 0; page < pool_.size(); ++page) REQUIRE(pool_.references(page) == count[page]);
    REQUIRE(pool_.in_use() == std::count_if(count.begin(), count.end(), [](auto& c) { return c.second > 0; }));
  }

  Random random_;
  SchedulerLimits limits_;
  PagePool pool_;
  std::vector<std::array<std::uint64_t, 16>> held_;  // [page][slot]
  std::map<SequenceId, Model> live_;                 // ids ascend in arrival order
  SequenceId next_id_ = 1;
};

void storms(std::int32_t depths) {
  SchedulerStats sum;
  std::array<std::int64_t, 16> left{};
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    CAPTURE(depths);
    Storm storm(seed, depths);
    storm.run(300);
    sum.steps += storm.stats.steps;
    sum.preemptions += storm.stats.preemptions;
    sum.recomputed_rows += storm.stats.recomputed_rows;
    sum.prefix_hit_tokens += storm.stats.prefix_hit_tokens;
    if (depths == 1) REQUIRE(storm.stats.rows == storm.stats.decode_rows + storm.stats.prefill_rows);
    for (std::size_t i = 0; i < left.size(); ++i) left[i] += storm.stats.decoded_loops[i];
  }
  MESSAGE("depths ", depths, ": ", sum.steps, " steps, ", sum.preemptions, " preemptions, ", sum.recomputed_rows,
          " recomputed rows, ", sum.prefix_hit_tokens, " prefix hit tokens (seeds 1..40)");
  // The storms are worth something only if they reach the rare paths.
  CHECK(sum.preemptions > 50);
  CHECK(sum.recomputed_rows > 100);
  CHECK(sum.prefix_hit_tokens > 1000);
  for (std::size_t i = 0; i < static_cast<std::size_t>(depths) && depths > 1; ++i) CHECK(left[i] > 100);
}

TEST_CASE("every request of a storm ends, reads only its own prefix, and leaves no page in use") { storms(1); }

TEST_CASE("a storm of looped sequences with exits at every depth keeps the same promises") { storms(4); }

}  // namespace
}  // namespace tessera
