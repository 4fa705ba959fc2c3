// The arithmetic of loop_reference against numbers worked by hand, and against itself on another instruction set.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "support.h"

namespace tessera_loop {
namespace {

TEST_CASE("the retained count is the ceiling of an f64 product") {
  CHECK(retained_count(13, 0.1) == 2);
  CHECK(retained_count(10, 0.1) == 1);
  CHECK(retained_count(11, 0.1) == 2);
  CHECK(retained_count(1, 0.02) == 1);
  CHECK(retained_count(7, 0.0) == 1);
  CHECK(retained_count(900, 1.0) == 900);
  CHECK(retained_count(50, 0.3) == 15);  // f32 says 16
}

TEST_CASE("half of four positions: 20 - 13 + 0.75 * 22 is 23.5") {
  Bench bench(4);
  const float probabilities[] = {0.5f, 0.25f, 0.125f, 0.125f}, values[] = {16, 20, 24, 32};
  for (std::int32_t j = 0; j < 4; ++j) {
    bench.scores[static_cast<std::size_t>(j)] = std::log(probabilities[j]);
    bench.set_value(j, values[j]);
  }
  std::fill(bench.out.begin(), bench.out.end(), 20.0f);  // what attention gave
  bench.capture(scalar::kKernels, 0.5);
  CHECK(bench.count == 2);
  CHECK(bench.selected(0) == 0);
  CHECK(bench.selected(1) == 1);
  CHECK(bench.mass == doctest::Approx(0.75).epsilon(1e-6));
  bench.set_value(0, 20);  // the next loop's values; its query is 0, so its scores are equal
  bench.set_value(1, 24);
  bench.consume(scalar::kKernels);
  for (const float component : bench.out) CHECK(component == doctest::Approx(23.5).epsilon(1e-6));
}

TEST_CASE("of equal scores the lower positions are kept, and -0 equals +0") {
  Bench bench(40);
  for (std::size_t j = 0; j < 40; ++j) bench.scores[j] = j == 37 ? 1.0f : j % 2 == 0 ? -0.0f : 0.0f;
  bench.capture(scalar::kKernels, 0.1);
  CHECK(bench.count == 4);
  CHECK(std::vector<std::int32_t>{bench.selected(0), bench.selected(1), bench.selected(2), bench.selected(3)} ==
        std::vector<std::int32_t>{0, 1, 2, 37});
}

TEST_CASE("selection, mass and sums agree with f64, and instruction sets with each other") {
  constexpr std::uint64_t kSeed = 20260908;
  CAPTURE(kSeed);
  tessera::Random random(kSeed, 3);
  for (const std::int32_t length : {1, 2, 17, 255, 256, 257, 700, 1025}) {
    Bench bench(length);
    for (auto* list : {&bench.k, &bench.v, &bench.q, &bench.out})
      for (float& value : *list) value = random.real(-1, 1);
    for (float& score : bench.scores) score = std::round(random.real(-3, 3) * 8) / 8;  // with ties
    Bench other = bench;
    bench.capture(scalar::kKernels, 0.3);

    std::vector<std::int32_t> order(static_cast<std::size_t>(length));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return bench.scores[static_cast<std::size_t>(a)] > bench.scores[static_cast<std::size_t>(b)];
    });
    order.resize(static_cast<std::size_t>(bench.count));
    double kept = 0, all = 0;
    for (const float score : bench.scores) all += std::exp(double{score});
    for (const std::int32_t j : order) kept += std::exp(double{bench.scores[static_cast<std::size_t>(j)]});
    std::sort(order.begin(), order.end());
    for (std::int32_t rank = 0; rank < bench.count; ++rank)
      REQUIRE(bench.selected(rank) == order[static_cast<std::size_t>(rank)]);
    CHECK(double{bench.mass} == doctest::Approx(kept / all).epsilon(1e-5));
    CHECK(bench.mass >= static_cast<float>(bench.count) / static_cast<float>(length) - 1e-6f);
    bench.consume(scalar::kKernels);
    if (!__builtin_cpu_supports("avx2")) continue;
    other.capture(avx2::kKernels, 0.3);
    CHECK(std::bit_cast<std::uint32_t>(bench.mass) == std::bit_cast<std::uint32_t>(other.mass));
    other.consume(avx2::kKernels);
    for (std::size_t d = 0; d < bench.out.size(); ++d)
      CHECK(std::bit_cast<std::uint32_t>(bench.out[d]) == std::bit_cast<std::uint32_t>(other.out[d]));
  }
}

}  // namespace
}  // namespace tessera_loop
