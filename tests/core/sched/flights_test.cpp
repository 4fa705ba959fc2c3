// Rounds on the device, event by event: what a round in flight holds, and when it returns.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "sched/scheduler.h"
#include "support/aborts.h"

namespace tessera {
namespace {

constexpr std::int32_t kAnswer = 7, kRows = 3;

/// Rounds of 3 rows: drafted by 2 loops of 4, captured in the second.
const SchedulerLimits kLimits{.max_batch = 2,
                              .step_tokens = 32,
                              .depths = 4,
                              .capture_depth = 1,
                              .draft_tokens = kRows - 1,
                              .draft_loops = 2,
                              .rounds_in_flight = 2,
                              .prefix_cache = false};

SequenceSpec spec_of(SequenceId id, std::int32_t prompt, std::int32_t max_tokens, std::int32_t sparse_from) {
  SequenceSpec spec{id, std::vector<std::int32_t>(static_cast<std::size_t>(prompt)), max_tokens, {.max = 4}};
  std::iota(spec.prompt.begin(), spec.prompt.end(), 1);
  spec.loops.sparse_from = sparse_from;
  spec.greedy = true;
  return spec;
}

void submit(Scheduler& scheduler, const SequenceSpec& spec) { REQUIRE(scheduler.submit(std::span(&spec, 1)).ok()); }

std::vector<StepOutcome> outcomes_of(const StepPlan& plan) {
  std::vector<StepOutcome> outcomes;
  for (const PlanSlice& slice : plan.slices)
    if (slice.wants_logits && slice.last_pass()) outcomes.push_back({slice.id, {kAnswer}, false});
  return outcomes;
}

void step(Scheduler& scheduler) {
  const StepPlan plan = scheduler.plan();
  REQUIRE_FALSE(plan.empty());
  scheduler.commit(plan, outcomes_of(plan));
}

/// Steps until all prompts are computed and a round may begin.
void prefill(Scheduler& scheduler) {
  for (int i = 0; i < 40 && scheduler.plan_round().empty(); ++i) step(scheduler);
  REQUIRE_FALSE(scheduler.plan_round().empty());
}

RoundPlan launch(Scheduler& scheduler) {
  RoundPlan plan = scheduler.plan_round();
  REQUIRE_FALSE(plan.empty());
  scheduler.launch(plan);
  return plan;
}

RoundOutcome confirmed(SequenceId id, std::int32_t candidates, bool finished = false) {
  return {id, std::vector<std::int32_t>(static_cast<std::size_t>(candidates) + 1, kAnswer), finished, candidates};
}

void land(Scheduler& scheduler, const RoundPlan& plan, const std::vector<RoundOutcome>& outcomes) {
  scheduler.land(plan.number, outcomes);
}

/// The lease of each row of a round, when all its slots are in use for the `incarnation`th time.
std::vector<ReferenceLease> leases_of(const RoundPlan::Item& item, std::uint64_t incarnation) {
  std::vector<ReferenceLease> leases;
  for (std::size_t row = 0; row < item.references.size(); ++row)
    leases.push_back(
        {item.references[row].slot, incarnation, item.id, static_cast<std::uint64_t>(item.position) + row});
  return leases;
}

bool all_in_use(const PagePool& pool, const std::vector<PageId>& pages) {
  return std::all_of(pages.begin(), pages.end(), [&](PageId page) { return pool.references(page) == 1; });
}

TEST_CASE("when the older of two rounds lands, the younger one's slots stay bound and its pages in place") {
  PagePool pool(64);
  Scheduler scheduler(kLimits, pool);
  submit(scheduler, spec_of(1, 12, 40, 0));  // the second round reaches into the second block
  prefill(scheduler);
  const RoundPlan older = launch(scheduler), younger = launch(scheduler);
  const RoundPlan::Item &first = older.items[0], &second = younger.items[0];
  CHECK((first.first && !second.first));
  CHECK(first.position == 12);
  CHECK(second.position == 12 + kRows);
  CHECK(second.states == first.states);
  std::set<std::int32_t> slots;
  for (const auto* round : {&first, &second})
    for (const RowReference& reference : round->references) slots.insert(reference.slot);
  CHECK(std::ssize(slots) == 2 * kRows);
  CHECK(second.pages.size() == 2 * 4);
  CHECK(pool.in_use() == 2 * 4);

  land(scheduler, older, {confirmed(1, 0)});  // the computed positions need one block
  CHECK(scheduler.computed(1) == 13);
  CHECK(pool.in_use() == 2 * 4);
  CHECK(all_in_use(pool, second.pages));
  for (const ReferenceLease& lease : leases_of(first, 1)) CHECK_FALSE(scheduler.references().live(lease));
  for (const ReferenceLease& lease : leases_of(second, 1)) CHECK(scheduler.references().readable(lease));
  // A third one may take the first one's slots, and none of the second's.
  const RoundPlan third = scheduler.plan_round();
  REQUIRE(third.items.size() == 1);
  CHECK(third.items[0].position == 13 + kRows);
  CHECK(third.items[0].states == first.states);
  for (const RowReference& reference : third.items[0].references)
    CHECK(std::none_of(second.references.begin(), second.references.end(),
                       [&](const RowReference& other) { return other.slot == reference.slot; }));

  land(scheduler, younger, {confirmed(1, 0)});
  CHECK(scheduler.computed(1) == 14);
  CHECK(pool.in_use() == 4);
  CHECK(scheduler.references().outstanding() == 0);
}

TEST_CASE("a round that lands twice, out of turn, or without the outcome of a live sequence ends the process") {
  PagePool pool(64);
  Scheduler scheduler(kLimits, pool);
  submit(scheduler, spec_of(1, 12, 40, 0));
  prefill(scheduler);
  const RoundPlan older = launch(scheduler);
  CHECK(aborts([&] { scheduler.launch(older); }));
  const RoundPlan younger = launch(scheduler);
  CHECK(scheduler.plan_round().empty());  // as many are in flight as may be
  CHECK(aborts([&] { land(scheduler, younger, {confirmed(1, 0)}); }));
  CHECK(aborts([&] { land(scheduler, older, {}); }));
  CHECK(aborts([&] { land(scheduler, older, {confirmed(2, 0)}); }));
  CHECK(aborts([&] { land(scheduler, older, {confirmed(1, kRows)}); }));
  land(scheduler, older, {confirmed(1, 1)});
  CHECK(aborts([&] { land(scheduler, older, {confirmed(1, 1)}); }));
  land(scheduler, younger, {confirmed(1, 1)});
  CHECK(aborts([&] { land(scheduler, younger, {confirmed(1, 1)}); }));
}

TEST_CASE("of a cancelled sequence pages, states and slots return when its last round landed, and no outcome is told") {
  PagePool pool(64);
  Scheduler scheduler(kLimits, pool);
  submit(scheduler, spec_of(1, 12, 40, 0));
  submit(scheduler, spec_of(2, 12, 40, 0));
  prefill(scheduler);
  const RoundPlan older = launch(scheduler), younger = launch(scheduler);
  REQUIRE(younger.items.size() == 2);
  CHECK(scheduler.cancel(1));
  CHECK_FALSE(scheduler.alive(1));
  CHECK_FALSE(scheduler.cancel(1));
  CHECK(scheduler.leaving() == 1);
  CHECK(all_in_use(pool, younger.items[0].pages));
  CHECK(scheduler.references().outstanding() == 4 * kRows);
  CHECK(scheduler.plan_round().empty());
  CHECK(aborts([&] { (void)scheduler.plan(); }));
  CHECK(aborts([&] { land(scheduler, older, {confirmed(1, 0), confirmed(2, 0)}); }));

  land(scheduler, older, {confirmed(2, 0)});
  CHECK(scheduler.leaving() == 1);
  CHECK(all_in_use(pool, younger.items[0].pages));
  for (const ReferenceLease& lease : leases_of(younger.items[0], 1)) CHECK(scheduler.references().readable(lease));
  land(scheduler, younger, {confirmed(2, 0)});
  CHECK(scheduler.leaving() == 0);
  CHECK(scheduler.in_flight() == 0);
  CHECK(scheduler.stats().discarded_rounds == 2);
  CHECK(scheduler.stats().device_rounds == 2);
  CHECK(scheduler.references().outstanding() == 0);
  CHECK(pool.in_use() == 4);  // of the other one
  CHECK(scheduler.cancel(2));
  CHECK(pool.in_use() == 0);
}

TEST_CASE("a sequence that ends in the older round leaves when the younger one landed, which is discarded") {
  PagePool pool(64);
  Scheduler scheduler(kLimits, pool);
  submit(scheduler, spec_of(1, 12, 40, 0));
  prefill(scheduler);
  const RoundPlan older = launch(scheduler), younger = launch(scheduler);
  RoundOutcome outcome = confirmed(1, 2, true);
  outcome.tokens.resize(1);  // it ends within what was confirmed
  land(scheduler, older, {outcome});
  CHECK(scheduler.idle());
  CHECK(scheduler.leaving() == 1);
  CHECK(all_in_use(pool, younger.items[0].pages));
  CHECK(scheduler.references().outstanding() == kRows);
  land(scheduler, younger, {});
  CHECK(scheduler.leaving() == 0);
  CHECK(scheduler.stats().discarded_rounds == 1);
  CHECK(scheduler.stats().round_tokens == 1);
  CHECK(scheduler.stats().candidates[0] == 1);
  CHECK(scheduler.stats().candidates[1] == 0);  // beyond the end
  CHECK(pool.in_use() == 0);
  CHECK(scheduler.references().outstanding() == 0);
}

TEST_CASE("a round is launched only where the answer can hold its tokens, counted from what is known by then") {
  PagePool pool(64);
  Scheduler scheduler(kLimits, pool);
  submit(scheduler, spec_of(1, 4, 1 + 2 * kRows - 1, 100));  // after the prompt's token, one less than two rounds
  prefill(scheduler);
  const RoundPlan first = launch(scheduler);
  CHECK(scheduler.plan_round().empty());      // 2 tokens would be left
  land(scheduler, first, {confirmed(1, 1)});  // and now 3 are
  const RoundPlan second = launch(scheduler);
  CHECK(second.items[0].first);
  CHECK(second.items[0].position == 6);
  land(scheduler, second, {confirmed(1, 1)});
  CHECK(scheduler.plan_round().empty());
  const StepPlan plan = scheduler.plan();  // the last token is the steps' to make
  REQUIRE(plan.slices.size() == 1);
  CHECK(plan.slices[0].first_position == 8);
}

TEST_CASE("rounds in flight are recalled when pages are short, and only then somebody is preempted") {
  PagePool pool(2 * 4);  // two blocks
  SchedulerLimits limits = kLimits;
  limits.capture_depth = 0;
  Scheduler scheduler(limits, pool);
  SequenceSpec host = spec_of(1, 15, 10, 0), flying = spec_of(2, 8, 8, 0);
  host.greedy = false;
  submit(scheduler, host), submit(scheduler, flying);
  // Each has a block; soon the first one needs another.
  while (scheduler.plan_round().empty()) step(scheduler);
  const RoundPlan round = launch(scheduler);
  REQUIRE(round.items[0].id == 2);
  StepPlan plan = scheduler.plan();
  for (int i = 0; i < 40 && !plan.recall; ++i) {
    CHECK(plan.preempted.empty());
    for (const PlanSlice& slice : plan.slices) CHECK(slice.id == 1);
    scheduler.commit(plan, outcomes_of(plan));
    plan = scheduler.plan();
  }
  REQUIRE(plan.recall);
  CHECK((plan.empty() && plan.grants.empty() && plan.admitted.empty() && plan.preempted.empty()));
  CHECK(aborts([&] { scheduler.commit(plan, {}); }));
  land(scheduler, round, {confirmed(2, 2)});
  plan = scheduler.plan();  // nothing in flight held a page in vain
  CHECK_FALSE(plan.recall);
  CHECK(plan.preempted == std::vector<SequenceId>{2});
  scheduler.commit(plan, outcomes_of(plan));
  CHECK(scheduler.stats().preemptions == 1);
  CHECK(scheduler.waiting() == 1);
}

TEST_CASE("a recall may give back enough pages to go on without preempting anybody") {
  PagePool pool(3 * 4);  // three blocks
  SchedulerLimits limits = kLimits;
  limits.capture_depth = 0;
  Scheduler scheduler(limits, pool);
  SequenceSpec host = spec_of(1, 15, 10, 0), flying = spec_of(2, 13, 16, 0);
  host.greedy = false;
  submit(scheduler, host), submit(scheduler, flying);
  while (scheduler.plan_round().empty()) step(scheduler);
  const RoundPlan older = launch(scheduler), younger = launch(scheduler);
  CHECK(pool.available() == 0);  // the younger round might reach into a second block
  for (int i = 0; i < 40 && !scheduler.plan().recall; ++i) step(scheduler);
  REQUIRE(scheduler.plan().recall);
  land(scheduler, older, {confirmed(2, 0)});
  land(scheduler, younger, {confirmed(2, 0)});
  CHECK(pool.available() == 4);
  const StepPlan plan = scheduler.plan();
  CHECK_FALSE(plan.recall);
  CHECK(plan.preempted.empty());
  CHECK(plan.slices.at(0).id == 1);
}

TEST_CASE("no round takes the pages that a neighbour's next row needs and does not have yet") {
  PagePool pool(3 * 4);  // three blocks
  Scheduler scheduler(kLimits, pool);
  submit(scheduler, spec_of(1, 14, 10, 100));  // a round needs a second block
  SequenceSpec neighbour = spec_of(2, 16, 4, 100);
  neighbour.greedy = false;
  submit(scheduler, neighbour);
  while (scheduler.computed(1) < 14 || scheduler.computed(2) < 16) step(scheduler);
  CHECK(scheduler.running() == 2);
  CHECK(pool.available() == 4);
  CHECK(scheduler.plan_round().empty());
  CHECK(scheduler.cancel(2));
  CHECK(launch(scheduler).items[0].grant.size() == 4);
}

TEST_CASE("no round is launched while a prompt is computed: its steps carry the decoded rows") {
  PagePool pool(64);
  SchedulerLimits limits = kLimits;
  limits.chunk_cap = 8;
  Scheduler scheduler(limits, pool);
  submit(scheduler, spec_of(1, 12, 200, 0));
  prefill(scheduler);
  const RoundPlan round = launch(scheduler);
  submit(scheduler, spec_of(2, 40, 4, 0));
  step(scheduler);  // admits the second one
  CHECK(scheduler.plan_round().empty());
  land(scheduler, round, {confirmed(1, 0)});
  bool rode = false;
  while (scheduler.computed(2) < 40) {
    CHECK(scheduler.plan_round().empty());
    const StepPlan plan = scheduler.plan();
    rode = rode || std::any_of(plan.slices.begin(), plan.slices.end(), [](const auto& slice) { return slice.id == 1; });
    scheduler.commit(plan, outcomes_of(plan));
  }
  CHECK(rode);
  prefill(scheduler);  // until the first one's round in steps is done
  CHECK(launch(scheduler).items.size() >= 1);
}

TEST_CASE("rounds are dense below the crossing, sparse above it, and none is launched that might cross") {
  PagePool pool(64);
  Scheduler scheduler(kLimits, pool);
  submit(scheduler, spec_of(1, 4, 40, 4 + 2 * kRows));
  prefill(scheduler);
  const RoundPlan first = launch(scheduler), second = launch(scheduler);
  CHECK(first.items[0].references.empty());
  CHECK(second.items[0].references.empty());  // its last row is at 9 at most
  land(scheduler, first, {confirmed(1, 0)});
  CHECK(scheduler.computed(1) == 5);
  const RoundPlan third = scheduler.plan_round();  // up to 8 + 2, should the second round confirm everything
  CHECK(third.empty());
  land(scheduler, second, {confirmed(1, 2)});
  CHECK(scheduler.computed(1) == 8);
  CHECK(scheduler.plan_round().empty());  // 8, 9 and 10
  CHECK(scheduler.references().outstanding() == 0);
  CHECK(scheduler.stats().captured_rows == 0);
  while (scheduler.plan_round().empty()) step(scheduler);  // the rows below it are decoded in steps
  CHECK(scheduler.computed(1) >= 4 + 2 * kRows);
  const RoundPlan sparse = launch(scheduler);
  CHECK(sparse.items[0].references.size() == kRows);
  CHECK(scheduler.references().outstanding() == kRows);
  land(scheduler, sparse, {confirmed(1, 0)});
  CHECK(scheduler.stats().captured_rows >= kRows);
  CHECK(scheduler.references().outstanding() == 0);
}

TEST_CASE("a round is launched only of greedy sequences that run all loops, between their rounds in steps") {
  PagePool pool(64);
  Scheduler scheduler(kLimits, pool);
  SequenceSpec sampled = spec_of(1, 4, 20, 0), shallow = spec_of(2, 4, 20, 0);
  sampled.greedy = false;
  shallow.loops.max = 3;
  submit(scheduler, sampled), submit(scheduler, shallow);
  for (int i = 0; i < 60; ++i) {
    CHECK(scheduler.plan_round().empty());
    step(scheduler);
  }
  CHECK(scheduler.cancel(1));
  CHECK(scheduler.cancel(2));
  submit(scheduler, spec_of(3, 4, 20, 0));
  prefill(scheduler);
  step(scheduler);  // a round of steps has begun, and goes on to its end
  std::int32_t steps = 1;
  for (; scheduler.plan_round().empty(); ++steps) step(scheduler);
  CHECK(steps == kRows * 2 + 2);  // its drafts of two loops each, then the two others
}

}  // namespace
}  // namespace tessera
