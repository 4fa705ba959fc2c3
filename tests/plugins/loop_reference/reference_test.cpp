// The arithmetic of loop_reference against numbers worked by hand, and against itself on another instruction set.
#include "reference.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "retention.h"

namespace tessera_loop {
namespace {

namespace sdk = tessera::sdk;

constexpr std::int32_t kDim = 32;

/// One row, one head, its history on pages 0, 1, ...
class Bench {
 public:
  explicit Bench(std::int32_t length)
      : length_(length),
        pages_(static_cast<std::size_t>((length + 15) / 16)),
        k(pages_.size() * 16 * kDim),
        v(k.size()),
        q(kDim),
        out(kDim),
        scores(static_cast<std::size_t>(length)),
        selected(scores.size()),
        output_(kDim),
        contribution_(kDim),
        keys_(scores.size()),
        scratch_(scores.size()) {
    std::iota(pages_.begin(), pages_.end(), 0);
  }

  void capture(const Kernels& kernels, double retention) { run(kernels.capture, retained_count(length_, retention)); }
  void consume(const Kernels& kernels) { run(kernels.consume, 0); }
  void set_value(std::int32_t position, float value) {
    std::fill_n(v.begin() + position * kDim, kDim, value);  // pages are in order: position after position
  }

 private:
  void run(ItemFunction function, std::int32_t retained) {
    const std::int32_t position = length_ - 1, zero = 0;
    const sdk::Slice slice{0, 1, position, 0, 0, static_cast<std::int32_t>(pages_.size())};
    sdk::SparseArgs args{};
    args.q = {q.data(), sdk::DType::f32, 1, kDim, kDim};
    args.out = {out.data(), sdk::DType::f32, 1, kDim, kDim};
    args.kv = {k.data(), v.data(), sdk::DType::f32, slice.num_pages, 1, 1, kDim};
    args.rows = {1, 1, &zero, &position, &zero, &slice, pages_.data(), slice.num_pages, nullptr, 0};
    args.scores = scores.data();
    args.scores_stride = length_;
    const sdk::AttentionShape shape{1, 1, 1, kDim, 1.0f, sdk::DType::f32};
    function({&args,
              &shape,
              0,
              0,
              retained,
              {&count, &mass, output_.data(), contribution_.data(), selected.data()},
              {keys_.data(), scratch_.data()}});
  }

  std::int32_t length_;
  std::vector<std::int32_t> pages_;

 public:
  std::vector<float> k, v, q, out, scores;
  std::vector<std::int32_t> selected;
  std::int32_t count = 0;
  float mass = 0;

 private:
  std::vector<float> output_, contribution_;
  std::vector<std::uint64_t> keys_;
  std::vector<float> scratch_;
};

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
  CHECK(bench.selected[0] == 0);
  CHECK(bench.selected[1] == 1);
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
  CHECK(std::vector<std::int32_t>(bench.selected.begin(), bench.selected.begin() + 4) ==
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
    CHECK(std::equal(order.begin(), order.end(), bench.selected.begin()));
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
