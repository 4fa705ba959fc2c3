#include "bench/sparse_bench.h"

#include <doctest/doctest.h>

using namespace tessera;

namespace {

SparseBenchRow row_of(std::int32_t rows, std::int32_t context, bool replayed, double ratio) {
  return {16, rows, context, replayed, {}, {}, {}, {.median = ratio, .low = ratio, .high = ratio}, 0, {}};
}

}  // namespace

TEST_CASE("the crossover is the least context from which on no number of rows was slower") {
  SparseBench bench{.plugin = "p", .device = "d", .retention = 0.1, .rows = {}};
  CHECK(bench.crossover() == 0);
  bench.rows = {row_of(1, 64, false, 1.3), row_of(1, 128, false, 0.9), row_of(1, 256, false, 0.8),
                row_of(8, 64, false, 1.2), row_of(8, 128, false, 1.0), row_of(8, 256, false, 0.7)};
  CHECK(bench.crossover() == 256);  // eight rows at 128 gained nothing
  bench.rows[4].ratio.median = 0.99;
  CHECK(bench.crossover() == 128);
  bench.rows[2].ratio.median = 1.1;
  CHECK(bench.crossover() == 0);
}

TEST_CASE("where graphs were recorded, the crossover is that of replays") {
  SparseBench bench{.plugin = "p", .device = "d", .retention = 0.1, .rows = {}};
  bench.rows = {row_of(1, 64, false, 1.3), row_of(1, 64, true, 0.9), row_of(1, 128, false, 1.2),
                row_of(1, 128, true, 0.8)};
  CHECK(bench.crossover() == 64);
  bench.rows[1].ratio.median = 1.1;
  CHECK(bench.crossover() == 128);
}
