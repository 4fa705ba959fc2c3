// Pages of index lists: promised at admission, held from capture to the end of a round.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "sched/scheduler.h"
#include "support/aborts.h"

namespace tessera {
namespace {

/// Rounds of 3 rows, drafted by 2 loops of 4; a row has a list page for every `each` positions that it sees.
SchedulerLimits limits_with(std::int32_t list_pages, std::int32_t rounds_in_flight = 1, std::int32_t each = 16) {
  SchedulerLimits limits{.max_batch = 4,
                         .step_tokens = 64,
                         .max_context = 64,
                         .depths = 4,
                         .capture_depth = 1,
                         .draft_tokens = 2,
                         .draft_loops = 2,
                         .rounds_in_flight = rounds_in_flight,
                         .prefix_cache = false,
                         .num_list_pages = list_pages};
  std::vector<std::int32_t> pages;
  for (std::int32_t position = 0; position < limits.max_context; ++position) pages.push_back(1 + position / each);
  limits.list_pages = std::make_shared<const std::vector<std::int32_t>>(std::move(pages));
  return limits;
}

SequenceSpec sparse(SequenceId id, std::int32_t max_tokens) {
  return {id, {1, 2, 3, 4}, max_tokens, {.max = 4, .sparse_from = 0}, false, true};
}

void submit(Scheduler& scheduler, const SequenceSpec& spec) { REQUIRE(scheduler.submit(std::span(&spec, 1)).ok()); }

/// Verifications confirm everything.
StepPlan step(Scheduler& scheduler) {
  const StepPlan plan = scheduler.plan();
  std::vector<StepOutcome> outcomes;
  std::vector<ExitOutcome> exits;
  for (const PlanSlice& slice : plan.slices) {
    if (slice.exit) exits.push_back({slice.id, slice.last_pass(), 1.0f});
    if (!slice.wants_logits || !slice.last_pass()) continue;
    StepOutcome outcome{slice.id, {}, false};
    if (slice.role == SliceRole::verify) outcome.tokens.assign(slice.tokens.begin() + 1, slice.tokens.end());
    outcome.tokens.push_back(7);
    outcomes.push_back(outcome);
  }
  scheduler.commit(plan, outcomes, exits);
  return plan;
}

TEST_CASE("a sequence whose index lists are not free waits, nobody overtakes it, and it runs when another ends") {
  PagePool pool(256);
  Scheduler scheduler(limits_with(12), pool);
  submit(scheduler, sparse(1, 30));               // to position 33: 3 pages a row
  submit(scheduler, sparse(2, 8));                // to position 11: 1 page a row
  submit(scheduler, sparse(3, 20));               // to position 23: 2 pages a row
  submit(scheduler, {4, {1, 2}, 8, {.max = 4}});  // dense: none
  for (int i = 0; i < 12; ++i) {
    step(scheduler);
    CHECK(scheduler.running() == 2);
    CHECK(scheduler.waiting() == 2);
  }
  CHECK(scheduler.cancel(2));  // leaves too few
  step(scheduler);
  CHECK(scheduler.running() == 1);
  CHECK(scheduler.cancel(1));
  const StepPlan plan = step(scheduler);
  REQUIRE(plan.admitted.size() == 2);
  CHECK(plan.admitted[0].id == 3);
  CHECK(plan.admitted[1].id == 4);
}

TEST_CASE("a sequence is promised the lists that its rows can hold at one time: one row's where it is not drafted") {
  PagePool pool(256);
  Scheduler scheduler(limits_with(12), pool);
  for (SequenceId id = 1; id <= 4; ++id) {
    SequenceSpec spec = sparse(id, 30);
    spec.loops.exit_threshold = 0.5f;  // such rows come one at a time
    submit(scheduler, spec);
  }
  step(scheduler);
  CHECK(scheduler.running() == 4);  // 3 pages each
  for (int i = 0; i < 100; ++i) step(scheduler);
  CHECK(scheduler.references().pages_high_water() <= 12);
  CHECK(scheduler.references().pages_high_water() > 4);
}

TEST_CASE("rows take the pages of their own position, and of a round all return together") {
  PagePool pool(256);
  Scheduler scheduler(limits_with(12), pool);
  submit(scheduler, sparse(1, 30));
  std::int32_t captured = 0;
  while (!scheduler.idle() && captured < 24) {
    const StepPlan plan = step(scheduler);
    for (const PlanSlice& slice : plan.slices)
      for (std::size_t row = 0; row < slice.references.size(); ++row) {
        const auto position = slice.first_position + static_cast<std::int32_t>(row);
        CHECK(std::ssize(slice.references[row].pages) == 1 + position / 16);
        captured += slice.mode == sdk::RowMode::capture ? 1 : 0;
      }
    if (plan.slices[0].role == SliceRole::verify && plan.slices[0].last_pass())
      CHECK(scheduler.references().outstanding_pages() == 0);
  }
  CHECK(captured == 24);
}

TEST_CASE("a plan whose list pages are not the row's own is refused") {
  PagePool pool(256);
  Scheduler scheduler(limits_with(12), pool);
  submit(scheduler, sparse(1, 30));
  StepPlan plan = scheduler.plan();
  while (plan.slices[0].mode != sdk::RowMode::consume) step(scheduler), plan = scheduler.plan();
  StepPlan wrong = plan;
  wrong.slices[0].references[0].pages[0] += 1;
  CHECK(aborts([&] { scheduler.commit(wrong, {}); }));
  CHECK_FALSE(aborts([&] { scheduler.commit(plan, {}); }));
}

TEST_CASE("rounds in flight hold lists for the highest positions that their rows can have, until they land") {
  PagePool pool(256);
  Scheduler scheduler(limits_with(192, 2, 2), pool);
  submit(scheduler, sparse(1, 30));
  submit(scheduler, sparse(2, 30));  // to position 33: 17 pages a row, of 3 rows in 2 rounds
  for (int i = 0; scheduler.plan_round().empty(); ++i) REQUIRE((step(scheduler), i < 40));
  CHECK(scheduler.running() == 1);
  std::vector<RoundPlan> rounds;
  while (scheduler.in_flight() < 2) {
    rounds.push_back(scheduler.plan_round());
    REQUIRE(rounds.back().items.size() == 1);
    const RoundPlan::Item& item = rounds.back().items[0];
    for (std::int32_t row = 0; row < 3; ++row)
      CHECK(std::ssize(item.references[static_cast<std::size_t>(row)].pages) == 1 + (item.position + row) / 2);
    scheduler.launch(rounds.back());
  }
  CHECK(rounds[1].items[0].position == rounds[0].items[0].position + 3);
  CHECK(scheduler.references().outstanding() == 6);
  const std::int32_t held = scheduler.references().outstanding_pages();
  const std::int32_t first = rounds[0].items[0].position;
  std::int32_t wanted = 0;
  for (std::int32_t row = 0; row < 6; ++row) wanted += 1 + (first + row) / 2;
  CHECK(held == wanted);
  CHECK(scheduler.cancel(1));  // ended, but its rounds are on the device
  CHECK(scheduler.references().outstanding_pages() == held);
  for (const RoundPlan& round : rounds) scheduler.land(round.number, {});
  CHECK(scheduler.references().outstanding_pages() == 0);
  REQUIRE(step(scheduler).admitted.size() == 1);
}

TEST_CASE("a scheduler is refused list pages that one sequence may exceed, or that shrink with the position") {
  PagePool pool(64);
  CHECK_FALSE(aborts([&] { Scheduler(limits_with(12), pool); }));
  CHECK(aborts([&] { Scheduler(limits_with(11), pool); }));
  CHECK(aborts([&] { Scheduler(limits_with(23, 2), pool); }));
  SchedulerLimits limits = limits_with(12);
  std::vector<std::int32_t> pages = *limits.list_pages;
  std::reverse(pages.begin(), pages.end());
  limits.list_pages = std::make_shared<const std::vector<std::int32_t>>(pages);
  CHECK(aborts([&] { Scheduler(limits, pool); }));
}

}  // namespace
}  // namespace tessera
