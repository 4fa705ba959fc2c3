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

}  // namespace
}  // namespace tessera
