#include <doctest/doctest.h>

#include "bench/burst_bench.h"

using namespace tessera;

namespace {

std::string complaint(const BurstRow& row) {
  const Status status = judge(row);
  return status.ok() ? "" : status.message;
}

BurstRow row_of() {
  BurstRow row{.shape = {64, 256}, .retention = "0.1", .rounds_in_flight = 1, .reason = {}};
  row.memory.warm_up_allowed = 64 << 20;
  return row;
}

}  // namespace

TEST_CASE("a burst that took nothing and left nothing is fine, and each thing it must not do is one sentence") {
  CHECK(complaint(row_of()).empty());
  const auto refused = [](auto change, const std::string& words) {
    BurstRow row = row_of();
    change(row);
    CHECK(complaint(row) == "burst of 64 requests of 256 tokens, retention 0.1, speculative: " + words);
  };
  refused([](BurstRow& row) { row.unfinished = 3, row.reason = "no memory"; },
          "3 requests did not get their answer: no memory");
  refused([](BurstRow& row) { row.memory.warm_up = (64 << 20) + 1; },
          "its first steps took 64.0 MiB more than was claimed at load, where 64.0 MiB are allowed");
  refused([](BurstRow& row) { row.memory.grown = 1 << 20; },
          "memory grew by 1.0 MiB after load and warm-up, where 0.0 MiB are allowed");
  refused([](BurstRow& row) { row.pages_left = 5; }, "5 pages are still in use");
  refused([](BurstRow& row) { row.references_left = 2; }, "2 reference slots are still taken");
  refused([](BurstRow& row) { row.other_answers = 1; }, "1 answers are not those of the same arithmetic without");
}

TEST_CASE("the prompts of a burst are the published probe's, and stay within a small vocabulary") {
  const auto prompt = burst_prompt(2, 400, 49152);
  CHECK(prompt[0] == 1 + 106);
  CHECK(prompt[1] == 1 + 243);
  CHECK(prompt[357] == 1 + (137 * 357 + 106) % 49000);
  for (const std::int32_t token : burst_prompt(63, 256, 512)) CHECK((token >= 1 && token < 512));
}

TEST_CASE("a percentile is the smallest value that enough of them do not exceed") {
  std::vector<double> values;
  for (int i = 20; i > 0; --i) values.push_back(i);
  CHECK(percentile(values, 0.5) == 10);
  CHECK(percentile(values, 0.95) == 19);
  CHECK(percentile(values, 1) == 20);
  CHECK(percentile({7}, 0.5) == 7);
}

TEST_CASE("a burst through the engine answers everything, drains, and keeps the answers of the same arithmetic") {
  Registry registry({std::filesystem::path(TESSERA_BINARY_DIR) / "plugins"});
  const BurstOptions options{.shapes = {{5, 33}}, .geometry = {1, 1, 128}, .retentions = {"1", "0.2"}, .rounds = 1};
  const auto bench = bench_bursts({}, registry, options);
  REQUIRE_MESSAGE(bench.ok(), bench.status().message);
  REQUIRE(bench->rows.size() == 9);
  for (const BurstRow& row : bench->rows) {
    CHECK(complaint(row) == "");
    CHECK(row.tokens == 5 * 16);
    CHECK(row.first_token.p50 > 0);
  }
  CHECK(bench->rows[6].reference_high_water == 5);
  CHECK(bench->rows[7].reference_slots == 20);
  CHECK(bench->rows[8].reference_slots == 40);
  CHECK(bench->rows[8].device_rounds > 0);
}
