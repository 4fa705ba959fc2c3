#include "sched/scheduler.h"

#include <doctest/doctest.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/aborts.h"

namespace tessera {
namespace {

std::vector<std::int32_t> prompt_of(std::int32_t size, std::int32_t start = 0) {
  std::vector<std::int32_t> tokens;
  for (std::int32_t i = 0; i < size; ++i) tokens.push_back(start + i);
  return tokens;
}

Status submit(Scheduler& scheduler, SequenceId id, std::vector<std::int32_t> prompt, std::int32_t max_tokens = 8) {
  const SequenceSpec spec{id, std::move(prompt), max_tokens};
  return scheduler.submit(std::span(&spec, 1));
}

/// Plans and commits one step; every slice that wants a token gets 7, the `ending` ones finish.
StepPlan step(Scheduler& scheduler, std::initializer_list<SequenceId> ending = {}) {
  const StepPlan plan = scheduler.plan();
  std::vector<StepOutcome> outcomes;
  for (const PlanSlice& slice : plan.slices) {
    bool ends = false;
    for (const SequenceId id : ending) ends = ends || id == slice.id;
    if (slice.wants_logits) outcomes.push_back({slice.id, {7}, ends});
  }
  scheduler.commit(plan, outcomes);
  return plan;
}

std::string shape(const StepPlan& plan) {  // "id:rows" of each slice, '!' where logits are wanted
  std::string text;
  for (const PlanSlice& slice : plan.slices) {
    text +=
        fmt::format("{}{}:{}{}", text.empty() ? "" : " ", slice.id, slice.tokens.size(), slice.wants_logits ? "!" : "");
  }
  return text;
}

TEST_CASE("a prompt is computed in one step and then decodes one row a step") {
  PagePool pool(8);
  Scheduler scheduler({}, pool);
  CHECK(scheduler.idle());
  CHECK(scheduler.plan().empty());
  REQUIRE(submit(scheduler, 1, prompt_of(16)).ok());
  const StepPlan first = step(scheduler);
  CHECK(shape(first) == "1:16!");
  CHECK(first.slices[0].pages == std::vector<PageId>{0});
  const StepPlan second = step(scheduler);
  CHECK(shape(second) == "1:1!");
  CHECK(second.slices[0].first_position == 16);
  CHECK(second.slices[0].tokens == std::vector<std::int32_t>{7});
  CHECK(second.slices[0].pages == std::vector<PageId>{0, 1});
  step(scheduler, {1});
  CHECK(scheduler.idle());
  CHECK_FALSE(scheduler.alive(1));
  CHECK(pool.in_use() == 0);
  CHECK(scheduler.stats().prefill_rows == 16);
  CHECK(scheduler.stats().decode_rows == 2);
}

TEST_CASE("a table lists all blocks of the first depth before the second") {
  PagePool pool(8);
  Scheduler scheduler({.depths = 2}, pool);
  REQUIRE(submit(scheduler, 1, prompt_of(20)).ok());
  const StepPlan plan = step(scheduler);
  CHECK(plan.grants.at(0).pages == std::vector<PageId>{0, 1, 2, 3});
  CHECK(plan.slices.at(0).pages == std::vector<PageId>{0, 2, 1, 3});
}

TEST_CASE("chunks respect the cap and the step, and decode rows come first") {
  PagePool pool(32);
  Scheduler scheduler({.max_batch = 4, .step_tokens = 24, .chunk_cap = 16}, pool);
  REQUIRE(submit(scheduler, 1, prompt_of(10)).ok());
  CHECK(shape(step(scheduler)) == "1:10!");
  REQUIRE(submit(scheduler, 2, prompt_of(40, 100)).ok());
  REQUIRE(submit(scheduler, 3, prompt_of(20, 200)).ok());
  CHECK(shape(step(scheduler)) == "1:1! 2:16 3:7");
  CHECK(shape(step(scheduler)) == "1:1! 2:16 3:7");
  CHECK(shape(step(scheduler)) == "1:1! 2:8! 3:6!");
  CHECK(shape(step(scheduler)) == "1:1! 2:1! 3:1!");
}

TEST_CASE("nobody behind a sequence that lacks pages is admitted") {
  PagePool pool(4);
  Scheduler scheduler({}, pool);
  REQUIRE(submit(scheduler, 1, prompt_of(30)).ok());
  REQUIRE(submit(scheduler, 2, prompt_of(40, 100)).ok());
  REQUIRE(submit(scheduler, 3, prompt_of(2, 200)).ok());
  CHECK(shape(step(scheduler)) == "1:30!");
  CHECK(scheduler.waiting() == 2);
  CHECK(scheduler.cancel(2));
  CHECK(shape(step(scheduler)) == "1:1! 3:2!");
}

TEST_CASE("pages that a chunked prompt still needs are not given to later arrivals") {
  PagePool pool(5);
  Scheduler scheduler({.chunk_cap = 16}, pool);
  REQUIRE(submit(scheduler, 1, prompt_of(60)).ok());
  REQUIRE(submit(scheduler, 2, prompt_of(20, 100)).ok());
  REQUIRE(submit(scheduler, 3, prompt_of(5, 200)).ok());
  for (int i = 0; i < 3; ++i) CHECK(shape(step(scheduler)) == "1:16");
  CHECK(shape(step(scheduler)) == "1:12!");
}

TEST_CASE("without pages the youngest running sequence is preempted and later recomputed from its own tokens") {
  PagePool pool(3);
  Scheduler scheduler({.prefix_cache = false}, pool);
  REQUIRE(submit(scheduler, 1, prompt_of(15), 20).ok());
  REQUIRE(submit(scheduler, 2, prompt_of(15, 100), 20).ok());
  CHECK(shape(step(scheduler)) == "1:15! 2:15!");
  CHECK(shape(step(scheduler)) == "1:1! 2:1!");
  const StepPlan plan = step(scheduler);
  CHECK(shape(plan) == "1:1!");
  CHECK(plan.preempted == std::vector<SequenceId>{2});
  CHECK(scheduler.running() == 1);
  CHECK(scheduler.waiting() == 1);
  CHECK(shape(step(scheduler, {1})) == "1:1!");
  const StepPlan again = step(scheduler);
  CHECK(shape(again) == "2:17!");
  CHECK(again.slices[0].tokens.back() == 7);
  CHECK(scheduler.stats().preemptions == 1);
  CHECK(scheduler.stats().recomputed_rows == 16);
}

TEST_CASE("an older prompt takes back what a younger decode row was granted in the same step") {
  PagePool pool(4);
  Scheduler scheduler({.chunk_cap = 16}, pool);
  REQUIRE(submit(scheduler, 1, prompt_of(40)).ok());
  REQUIRE(submit(scheduler, 2, prompt_of(15, 100)).ok());
  CHECK(shape(step(scheduler)) == "1:16 2:15!");
  CHECK(shape(step(scheduler)) == "2:1! 1:16");
  const StepPlan plan = step(scheduler);
  CHECK(plan.preempted == std::vector<SequenceId>{2});
  CHECK(shape(plan) == "1:8!");
  REQUIRE(plan.grants.size() == 1);
  CHECK(plan.grants[0].pages == std::vector<PageId>{3});
}

TEST_CASE("a block of which a decode row takes a page in the same step is no hit any more") {
  PagePool pool(21);
  Scheduler scheduler({.depths = 2}, pool);
  REQUIRE(submit(scheduler, 1, prompt_of(49), 1).ok());
  step(scheduler, {1});
  REQUIRE(submit(scheduler, 2, prompt_of(33, 100), 1).ok());
  step(scheduler, {2});
  REQUIRE(submit(scheduler, 3, prompt_of(80, 200)).ok());
  step(scheduler);
  REQUIRE(submit(scheduler, 4, prompt_of(49), 1).ok());
  const StepPlan plan = step(scheduler, {4});
  CHECK(shape(plan) == "3:1! 4:17!");
  CHECK(plan.grants.at(0).pages == std::vector<PageId>{12, 5});  // 12 is plain, 5 is half of the oldest block
  CHECK(plan.admitted.at(0).hits == std::vector<PageId>{0, 1, 2, 3});
  CHECK(plan.grants.at(1).pages == std::vector<PageId>{4, 11, 10, 9});
}

TEST_CASE("a prefix hit shares full blocks, also of ended sequences, and recomputes at least the last token") {
  PagePool pool(8);
  Scheduler scheduler({}, pool);
  REQUIRE(submit(scheduler, 1, prompt_of(32)).ok());
  step(scheduler, {1});
  CHECK(pool.in_use() == 0);
  REQUIRE(submit(scheduler, 2, prompt_of(32)).ok());
  const StepPlan plan = step(scheduler);
  CHECK(plan.admitted.at(0).hits == std::vector<PageId>{0});
  CHECK(shape(plan) == "2:16!");
  CHECK(scheduler.cached_tokens(2) == 16);
  REQUIRE(submit(scheduler, 3, prompt_of(33)).ok());
  const StepPlan both = step(scheduler);
  CHECK(both.admitted.at(0).hits == std::vector<PageId>{0, 1});
  CHECK(shape(both) == "2:1! 3:1!");
  CHECK(scheduler.cached_tokens(3) == 32);
  CHECK(pool.references(0) == 2);
  CHECK(scheduler.stats().prefix_hit_tokens == 48);
}

TEST_CASE("without the prefix cache nothing is shared") {
  PagePool pool(8);
  Scheduler scheduler({.prefix_cache = false}, pool);
  REQUIRE(submit(scheduler, 1, prompt_of(32)).ok());
  step(scheduler, {1});
  REQUIRE(submit(scheduler, 2, prompt_of(32)).ok());
  CHECK(shape(step(scheduler)) == "2:32!");
  CHECK(scheduler.cached_tokens(2) == 0);
}

TEST_CASE("taking a cached page for other content forgets its block") {
  PagePool pool(2);
  Scheduler scheduler({}, pool);
  REQUIRE(submit(scheduler, 1, prompt_of(17), 1).ok());
  step(scheduler, {1});
  REQUIRE(submit(scheduler, 2, prompt_of(17, 100), 1).ok());
  step(scheduler, {2});
  REQUIRE(submit(scheduler, 3, prompt_of(17), 1).ok());
  CHECK(shape(step(scheduler, {3})) == "3:17!");
}

TEST_CASE("a sequence that cannot be admitted, or is refused, takes nothing from the prefix cache") {
  PagePool pool(8);
  Scheduler scheduler({}, pool);
  REQUIRE(submit(scheduler, 1, prompt_of(33), 1).ok());
  step(scheduler, {1});
  REQUIRE(submit(scheduler, 2, prompt_of(75, 100), 5).ok());
  CHECK(shape(step(scheduler)) == "2:75!");  // 5 pages; of the 3 others 2 are cached
  REQUIRE(submit(scheduler, 3, prompt_of(60, 200), 4).ok());
  CHECK(submit(scheduler, 4, prompt_of(150, 300), 8).code == Code::invalid_argument);
  for (int i = 0; i < 3; ++i) CHECK(shape(step(scheduler)) == "2:1!");
  CHECK(scheduler.waiting() == 1);
  CHECK(scheduler.cancel(3));
  REQUIRE(submit(scheduler, 5, prompt_of(33), 1).ok());
  const StepPlan plan = step(scheduler, {2, 5});
  CHECK(plan.admitted.at(0).hits == std::vector<PageId>{0, 1});
  CHECK(scheduler.stats().prefix_hit_tokens == 32);
}

TEST_CASE("what could never run and what the queue cannot hold is refused as a whole") {
  PagePool pool(3);
  Scheduler scheduler({.max_queue = 2, .max_context = 50, .depths = 1}, pool);
  const auto refused = [&](const Status& status, Code code, std::string_view word) {
    CHECK(status.code == code);
    CHECK_MESSAGE(std::string_view(status.message).find(word) != std::string_view::npos, status.message);
  };
  refused(submit(scheduler, 1, {}), Code::invalid_argument, "prompt");
  refused(submit(scheduler, 1, prompt_of(3), 0), Code::invalid_argument, "max_tokens");
  refused(submit(scheduler, 1, prompt_of(43), 8), Code::invalid_argument, "51");
  refused(submit(scheduler, 1, prompt_of(41), 8), Code::invalid_argument, "cache.pages");
  CHECK(submit(scheduler, 1, prompt_of(40), 8).ok());
  const std::vector<SequenceSpec> two{{2, prompt_of(1), 1}, {3, prompt_of(1), 1}};
  refused(scheduler.submit(two), Code::resource_exhausted, "max_queue");
  CHECK_FALSE(scheduler.alive(2));
  CHECK(scheduler.waiting() == 1);
}

TEST_CASE("cancelling returns the pages at once") {
  PagePool pool(4);
  Scheduler scheduler({}, pool);
  REQUIRE(submit(scheduler, 1, prompt_of(20)).ok());
  step(scheduler);
  CHECK(pool.in_use() == 2);
  CHECK(scheduler.cancel(1));
  CHECK(pool.in_use() == 0);
  CHECK_FALSE(scheduler.cancel(1));
  CHECK(scheduler.idle());
}

TEST_CASE("a stale plan, a missing outcome and a token beyond max_tokens abort") {
  PagePool pool(4);
  Scheduler scheduler({}, pool);
  REQUIRE(submit(scheduler, 1, prompt_of(4), 1).ok());
  CHECK(aborts([&] { scheduler.commit(scheduler.plan(), {}); }));
  CHECK_FALSE(aborts([&] { step(scheduler); }));
  const StepPlan plan = step(scheduler);
  CHECK(aborts([&] { scheduler.commit(plan, std::vector<StepOutcome>{{1, {7}, false}}); }));
  CHECK(aborts([&] { step(scheduler); }));
}

}  // namespace
}  // namespace tessera
