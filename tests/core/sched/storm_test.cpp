#include "storm.h"

#include <doctest/doctest.h>

namespace tessera {
namespace {

void storms(std::int32_t depths, std::int32_t draft_tokens = 0, std::int32_t draft_loops = 0) {
  SchedulerStats sum;
  std::array<std::int64_t, 16> left{};
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    CAPTURE(depths);
    CAPTURE(draft_tokens);
    CAPTURE(draft_loops);
    Storm storm(seed, depths, draft_tokens, draft_loops);
    storm.run(300);
    sum.steps += storm.stats.steps;
    sum.preemptions += storm.stats.preemptions;
    sum.recomputed_rows += storm.stats.recomputed_rows;
    sum.prefix_hit_tokens += storm.stats.prefix_hit_tokens;
    const SchedulerStats& one = storm.stats;
    if (depths == 1) REQUIRE(one.rows == one.decode_rows + one.prefill_rows + one.rejected_rows);
    for (std::size_t i = 0; i < left.size(); ++i) {
      left[i] += storm.stats.decoded_loops[i];
      sum.candidates[i] += storm.stats.candidates[i];
      sum.confirmed[i] += storm.stats.confirmed[i];
    }
    sum.captured_rows += storm.stats.captured_rows;
    sum.selecting_rows += storm.stats.selecting_rows;
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(draft_tokens); ++i) {
    MESSAGE("candidate ", i + 1, ": ", sum.confirmed[i], " of ", sum.candidates[i], " confirmed");
    CHECK(sum.candidates[i] - sum.confirmed[i] > 20);
    CHECK(sum.confirmed[i] > 20);
  }
  if (depths > 2) CHECK(sum.captured_rows > 100);
  if (depths == 1) CHECK(sum.selecting_rows > 100);
  MESSAGE("depths ", depths, ": ", sum.steps, " steps, ", sum.preemptions, " preemptions, ", sum.recomputed_rows,
          " recomputed rows, ", sum.prefix_hit_tokens, " prefix hit tokens (seeds 1..40)");
  // The storms are worth something only if they reach the rare paths.
  CHECK(sum.preemptions > 50);
  CHECK(sum.recomputed_rows > 100);
  CHECK(sum.prefix_hit_tokens > 1000);
  for (std::size_t i = 0; i < static_cast<std::size_t>(depths) && depths > 1; ++i) CHECK(left[i] > 100);
}

/// Greedy sequences fly among the others, which are drafted and verified in steps.
void flying_storms(std::int32_t depths, std::int32_t draft_tokens, std::int32_t draft_loops) {
  SchedulerStats sum;
  std::int64_t recalls = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    CAPTURE(seed);
    CAPTURE(draft_tokens);
    CAPTURE(draft_loops);
    Storm storm(seed, depths, draft_tokens, draft_loops, 2);
    storm.run(300);
    recalls += storm.recalls;
    sum.device_rounds += storm.stats.device_rounds;
    sum.discarded_rounds += storm.stats.discarded_rounds;
    sum.rounds += storm.stats.rounds;
    sum.preemptions += storm.stats.preemptions;
    sum.prefix_hit_tokens += storm.stats.prefix_hit_tokens;
    sum.captured_rows += storm.stats.captured_rows;
    for (std::size_t i = 0; i < sum.candidates.size(); ++i) {
      sum.candidates[i] += storm.stats.candidates[i];
      sum.confirmed[i] += storm.stats.confirmed[i];
    }
  }
  MESSAGE(draft_tokens, " drafted by ", draft_loops, " loops: ", sum.device_rounds, " rounds landed, ",
          sum.discarded_rounds, " discarded, ", sum.rounds - sum.device_rounds, " in steps, ", recalls, " recalls, ",
          sum.preemptions, " preemptions, ", sum.prefix_hit_tokens, " prefix hit tokens, ", sum.captured_rows,
          " captured rows (seeds 1..100)");
  CHECK(sum.device_rounds > 1000);
  CHECK(sum.rounds - sum.device_rounds > 1000);
  CHECK(sum.discarded_rounds > 50);
  CHECK(recalls > 30);
  CHECK(sum.preemptions > 50);
  CHECK(sum.prefix_hit_tokens > 1000);
  CHECK(sum.captured_rows > 100);
  for (std::size_t i = 0; i < static_cast<std::size_t>(draft_tokens); ++i) {
    MESSAGE("candidate ", i + 1, ": ", sum.confirmed[i], " of ", sum.candidates[i], " confirmed");
    CHECK(sum.candidates[i] - sum.confirmed[i] > 20);
    CHECK(sum.confirmed[i] > 20);
  }
}

TEST_CASE("every request of a storm ends, reads only its own prefix, and leaves no page in use") { storms(1); }

TEST_CASE("a storm of looped sequences with exits at every depth keeps the same promises") { storms(4); }

TEST_CASE("a storm of drafted and verified rounds keeps them, whatever is rejected") {
  storms(4, 3, 2);
  storms(4, 4, 1);
  storms(4, 2, 3);
}

TEST_CASE("a storm of looked up candidates keeps them") {
  storms(1, 3);
  storms(4, 2);
}

TEST_CASE("a storm of rounds on the device, two of a sequence in flight, keeps them wherever rounds land") {
  flying_storms(4, 3, 2);
  flying_storms(4, 4, 1);
  flying_storms(4, 2, 3);
}

}  // namespace
}  // namespace tessera
