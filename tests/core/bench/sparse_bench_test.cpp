#include "bench/sparse_bench.h"

#include <doctest/doctest.h>

#include <filesystem>

using namespace tessera;

namespace {

SparseBenchRow row_of(std::int32_t rows, std::int32_t context, bool replayed, double ratio) {
  return {.kv_heads = 16, .rows = rows, .context = context, .replayed = replayed, .ratio = {ratio, ratio, ratio}};
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

TEST_CASE("sparse decoding is timed for every number of rows, with what its selections kept and where") {
  Registry registry({std::filesystem::path(TESSERA_BINARY_DIR) / "plugins"});
  Config config;
  config.sparse_decode.plugin = {"loop_reference", {}, {{"retention", "0.5", {}}}, {}};
  const SparseBenchOptions options{.geometry = {.q_heads = 2, .kv_heads = 2, .head_dim = 32, .layers = 1, .layer = 0},
                                   .kv_heads = {2},
                                   .contexts = {40, 200},
                                   .rows = {1, 3},
                                   .rounds = 1};
  const auto bench = bench_sparse(config, registry, options);
  REQUIRE_MESSAGE(bench.ok(), bench.status().message);
  REQUIRE(bench->rows.size() == 4);
  for (const SparseBenchRow& row : bench->rows) {
    CHECK(row.skipped == "");
    CHECK(row.ratio.median > 0);
    CHECK(row.mass.least > 0.5);  // the larger half
    CHECK(row.mass.mean >= row.mass.least);
    CHECK(row.mass.mean < 1);
    CHECK(row.list_pages == (row.context == 40 ? 1 : 2));
  }
  CHECK(bench->rows[1].rows == 1);
  CHECK(bench->rows[2].rows == 3);
}
