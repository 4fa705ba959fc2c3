// References of sparse rounds, event by event: docs/looped-defects.md.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "sched/scheduler.h"
#include "support/aborts.h"

namespace tessera {
namespace {

constexpr std::int32_t kDrafted = 5, kAnswer = 7;

/// Rounds of 3 rows: drafted by 2 loops of 4, captured in the second.
const SchedulerLimits kLimits{.max_batch = 2,
                              .step_tokens = 32,
                              .depths = 4,
                              .capture_depth = 1,
                              .draft_tokens = 2,
                              .draft_loops = 2,
                              .prefix_cache = false};

void submit(Scheduler& scheduler, SequenceId id) {
  const SequenceSpec spec{id, {1, 2, 3, 4}, 20, {.max = 4, .sparse_from = 0}};
  REQUIRE(scheduler.submit(std::span(&spec, 1)).ok());
}

/// Verifications confirm `confirmed` candidates at most.
std::vector<StepOutcome> outcomes_of(const StepPlan& plan, std::size_t confirmed) {
  std::vector<StepOutcome> outcomes;
  for (const PlanSlice& slice : plan.slices) {
    if (!slice.wants_logits || !slice.last_pass()) continue;
    StepOutcome outcome{slice.id, {}, false};
    if (slice.role == SliceRole::verify)
      outcome.tokens.assign(
          slice.tokens.begin() + 1,
          slice.tokens.begin() + 1 + static_cast<std::ptrdiff_t>(std::min(confirmed, slice.tokens.size() - 1)));
    outcome.tokens.push_back(slice.role == SliceRole::draft ? kDrafted : kAnswer);
    outcomes.push_back(outcome);
  }
  return outcomes;
}

/// Runs up to the next step whose first slice is of this kind, and gives its plan.
StepPlan run_to(Scheduler& scheduler, SliceRole role, sdk::RowMode mode, std::size_t confirmed) {
  for (int i = 0; i < 40; ++i) {
    StepPlan plan = scheduler.plan();
    REQUIRE_FALSE(plan.empty());
    if (plan.slices[0].role == role && plan.slices[0].mode == mode) return plan;
    scheduler.commit(plan, outcomes_of(plan, confirmed));
  }
  FAIL("no such step");
  return {};
}

/// The leases of a slice whose slots are all in use for the `incarnation`th time.
std::vector<ReferenceLease> leases_of(const PlanSlice& slice, std::uint64_t incarnation) {
  std::vector<ReferenceLease> leases;
  for (std::size_t row = 0; row < slice.references.size(); ++row)
    leases.push_back(
        {slice.references[row].slot, incarnation, slice.id, static_cast<std::uint64_t>(slice.first_position) + row});
  return leases;
}

TEST_CASE("a rejected row's position comes back under a new lease, and a plan with the rejected slots is refused") {
  PagePool pool(64);
  Scheduler scheduler(kLimits, pool);
  submit(scheduler, 1);
  const PlanSlice first = run_to(scheduler, SliceRole::verify, sdk::RowMode::consume, 0).slices[0];
  const auto old = leases_of(first, 1);
  REQUIRE(old.size() == 3);
  for (const ReferenceLease& lease : old) CHECK(scheduler.references().readable(lease));

  const StepPlan draft = run_to(scheduler, SliceRole::draft, sdk::RowMode::dense, 0);  // rejected at once
  CHECK(scheduler.references().outstanding() == 0);
  for (const ReferenceLease& lease : old) CHECK_FALSE(scheduler.references().live(lease));
  CHECK(draft.slices[0].first_position == first.first_position + 1);

  StepPlan again = run_to(scheduler, SliceRole::verify, sdk::RowMode::consume, 0);
  CHECK(again.slices[0].first_position == old[1].generation);  // that of the first rejected row
  for (const ReferenceLease& lease : leases_of(again.slices[0], 2)) CHECK(scheduler.references().readable(lease));
  for (const ReferenceLease& lease : old) CHECK_FALSE(scheduler.references().live(lease));
  REQUIRE(again.slices[0].references != first.references);
  again.slices[0].references = first.references;
  CHECK(aborts([&] { scheduler.commit(again, {}); }));
}

TEST_CASE("of a round all slots return together, whatever was confirmed") {
  for (const std::size_t confirmed : {0, 1, 2}) {
    CAPTURE(confirmed);
    PagePool pool(64);
    Scheduler scheduler(kLimits, pool);
    submit(scheduler, 1);
    const PlanSlice round = run_to(scheduler, SliceRole::verify, sdk::RowMode::consume, confirmed).slices[0];
    CHECK(scheduler.references().outstanding() == 3);
    const StepPlan next = run_to(scheduler, SliceRole::draft, sdk::RowMode::dense, confirmed);
    CHECK(scheduler.references().outstanding() == 0);
    CHECK(next.slices[0].first_position == round.first_position + 1 + static_cast<std::int32_t>(confirmed));
    CHECK(scheduler.stats().rejected_rows == 2 - static_cast<std::int64_t>(confirmed));
  }
}

TEST_CASE("rounds of two sequences have slots of their own, and neither may consume the other's") {
  PagePool pool(64);
  Scheduler scheduler(kLimits, pool);
  submit(scheduler, 1), submit(scheduler, 2);
  StepPlan plan = run_to(scheduler, SliceRole::verify, sdk::RowMode::consume, 0);
  REQUIRE(plan.slices.size() == 2);
  std::vector<std::int32_t> slots;
  for (const PlanSlice& slice : plan.slices)
    for (const RowReference& reference : slice.references) slots.push_back(reference.slot);
  std::sort(slots.begin(), slots.end());
  CHECK(slots == std::vector<std::int32_t>{0, 1, 2, 3, 4, 5});
  CHECK(scheduler.references().size() == 6);  // max_batch times the rows of a round
  CHECK_FALSE(aborts([&] { scheduler.commit(plan, {}); }));
  std::swap(plan.slices[0].references, plan.slices[1].references);
  CHECK(aborts([&] { scheduler.commit(plan, {}); }));
}

TEST_CASE("a sequence that is cancelled between capture and consume gives its slots back, and its plan is refused") {
  PagePool pool(64);
  Scheduler scheduler(kLimits, pool);
  submit(scheduler, 1);
  const StepPlan plan = run_to(scheduler, SliceRole::verify, sdk::RowMode::consume, 0);
  const auto leases = leases_of(plan.slices[0], 1);
  CHECK(scheduler.cancel(1));
  CHECK(scheduler.references().outstanding() == 0);
  CHECK(pool.in_use() == 0);
  for (const ReferenceLease& lease : leases) CHECK_FALSE(scheduler.references().live(lease));
  CHECK(aborts([&] { scheduler.commit(plan, {}); }));
  submit(scheduler, 2);  // takes the same slots again
  const StepPlan other = run_to(scheduler, SliceRole::verify, sdk::RowMode::consume, 0);
  for (const ReferenceLease& lease : leases_of(other.slices[0], 2)) CHECK(scheduler.references().readable(lease));
  for (const ReferenceLease& lease : leases) CHECK_FALSE(scheduler.references().live(lease));
}

}  // namespace
}  // namespace tessera
