// What a slot of loop_reference has room for, and what is left in it: docs/looped-defects.md.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>

#include "base/random.h"
#include "support.h"

namespace tessera_loop {
namespace {

constexpr double kRetentions[] = {0.0, 0.02, 0.05, 0.1, 0.25, 0.3, 0.5, 0.75, 0.999, 1.0};

/// Has one option.
class OneOption final : public sdk::Host {
 public:
  explicit OneOption(double retention) : retention_(retention) {}
  virtual ~OneOption() = default;
  void log(sdk::LogLevel, const char*) noexcept override {}
  sdk::Status option_int(const char*, std::int64_t fallback, std::int64_t, std::int64_t,
                         std::int64_t* out) noexcept override {
    *out = fallback;
    return {};
  }
  sdk::Status option_real(const char* key, double, double, double, double* out) noexcept override {
    CHECK(std::string_view(key) == "retention");
    *out = retention_;
    return {};
  }
  sdk::Status option_bool(const char*, bool fallback, bool* out) noexcept override {
    *out = fallback;
    return {};
  }
  sdk::Status option_text(const char*, const char* fallback, const char** out) noexcept override {
    *out = fallback;
    return {};
  }
  sdk::Status option_choice(const char*, const char*, const char* const*, std::size_t,
                            std::size_t* out) noexcept override {
    *out = 0;
    return {};
  }
  sdk::Status refuse(const char*, const char*) noexcept override { return {}; }

 private:
  double retention_;
};

/// What the plugins of all devices share, without a device.
class Sizes final : public LoopReferenceBase {
 public:
  Sizes(sdk::Host& host, sdk::Status& status) : LoopReferenceBase(host, status) {}
  virtual ~Sizes() = default;
  sdk::Status bind(const sdk::AttentionShape& shape, const sdk::StepLimits& limits, const sdk::ReferenceRoom& room,
                   const sdk::DeviceContext&, std::size_t&) noexcept override {
    return accept(shape, limits, room);
  }
  std::int64_t capacity() const { return capacity_; }
};

std::int64_t capacity_of(double retention, std::int32_t max_context) {
  OneOption host(retention);
  sdk::Status status;
  Sizes sizes(host, status);
  REQUIRE(status.ok());
  std::size_t bytes = 0;
  sdk::StepLimits limits{};
  limits.max_context = max_context;
  REQUIRE(sizes.bind({1, 1, 1, 32, 1.0f, sdk::DType::f32}, limits, {1, 1}, {}, bytes).ok());
  return sizes.capacity();
}

TEST_CASE("a row needs as many list pages as its retained positions fill, and they and the slots are all it claims") {
  OneOption host(0.1);
  sdk::Status status;
  Sizes sizes(host, status);
  std::size_t bytes = 0;
  sdk::StepLimits limits{};
  limits.max_context = 8192;
  REQUIRE(sizes.bind({3, 4, 2, 32, 1.0f, sdk::DType::f32}, limits, {5, 7}, {}, bytes).ok());
  CHECK(sizes.list_pages(0) == 1);
  CHECK(sizes.list_pages(639) == 1);  // 64 of 640 positions
  CHECK(sizes.list_pages(640) == 2);
  CHECK(sizes.list_pages(8191) == 13);  // 820
  constexpr std::size_t kSlot = 3 * 4 * (4 + 4 + 2 * 32 * 4), kPage = 3 * 4 * sdk::kListPage * 4;
  CHECK(sizes.reference_bytes() == 5 * kSlot + 7 * kPage);
  CHECK(sdk::list_page_bytes({3, 4, 2, 32, 1.0f, sdk::DType::f32}) == kPage);
}

TEST_CASE("a list never shrinks as its history grows, so room for the longest is room for all") {
  for (const double retention : kRetentions) {
    CAPTURE(retention);
    std::int32_t before = 0;
    for (std::int32_t positions = 1; positions <= 70'000; ++positions) {
      const std::int32_t count = retained_count(positions, retention);
      REQUIRE(count >= before);
      REQUIRE(count >= 1);
      REQUIRE(count <= positions);
      REQUIRE(count >= positions * retention);            // never less than the share ...
      REQUIRE(count < positions * retention + 1 + 1e-9);  // ... nor one more than its ceiling
      before = count;
    }
  }
}

TEST_CASE("a slot is sized by what is kept of the configured context, and no history within it is cut") {
  CHECK(capacity_of(0.1, 272) == 28);
  CHECK(capacity_of(0.1, 65'536) == 6554);
  CHECK(capacity_of(0.999, 512) == 512);
  for (const double retention : kRetentions)
    for (const std::int32_t context : {1, 15, 16, 17, 500, 4096})
      for (const std::int32_t positions : {1, context / 2 + 1, context})
        CHECK(retained_count(std::min(positions, context), retention) <= capacity_of(retention, context));
}

void fill(tessera::Random& random, Bench& bench) {
  for (auto* list : {&bench.k, &bench.v, &bench.q, &bench.out})
    for (float& value : *list) value = random.real(-1, 1);
  for (float& score : bench.scores) score = random.real(-3, 3);
}

TEST_CASE("a slot that held a longer list gives the bits of a fresh one, and nothing after its count is read") {
  constexpr std::uint64_t kSeed = 20261203;
  CAPTURE(kSeed);
  tessera::Random random(kSeed, 1);
  for (const Kernels* kernels : {&scalar::kKernels, &avx2::kKernels}) {
    if (kernels == &avx2::kKernels && !__builtin_cpu_supports("avx2")) continue;
    for (const std::int32_t length : {1, 17, 300, 699}) {
      CAPTURE(length);
      Bench used(700);
      fill(random, used);
      used.capture(*kernels, 0.9);
      fill(random, used);
      Bench fresh(700);
      fresh.k = used.k, fresh.v = used.v, fresh.q = used.q, fresh.out = used.out, fresh.scores = used.scores;
      for (Bench* bench : {&used, &fresh}) {
        bench->set_length(length);
        bench->capture(*kernels, 0.2);
      }
      CHECK(used.count == fresh.count);
      CHECK(std::bit_cast<std::uint32_t>(used.mass) == std::bit_cast<std::uint32_t>(fresh.mass));
      for (std::int32_t rank = used.count; rank < 700; ++rank) used.selected(rank) = 1 << 28;
      used.consume(*kernels);
      fresh.consume(*kernels);
      for (std::size_t d = 0; d < used.out.size(); ++d)
        REQUIRE(std::bit_cast<std::uint32_t>(used.out[d]) == std::bit_cast<std::uint32_t>(fresh.out[d]));
    }
  }
}

TEST_CASE("whatever pages a list is on, and in whatever order, its bits are the same") {
  constexpr std::uint64_t kSeed = 20261204;
  CAPTURE(kSeed);
  tessera::Random random(kSeed, 1);
  for (const std::int32_t length : {3, 64, 65, 129, 699})  // fewer positions than a page has, one more, several pages
    for (const double retention : {0.05, 0.5, 0.999}) {
      CAPTURE(length);
      CAPTURE(retention);
      Bench one(700);
      fill(random, one);
      one.set_length(length);
      Bench other = one;
      other.lists.assign(20 * static_cast<std::size_t>(kStride), -1);
      std::vector<std::int32_t> ids(20);
      std::iota(ids.begin(), ids.end(), 0);
      for (std::size_t i = ids.size(); i > 1; --i)
        std::swap(ids[i - 1], ids[random.below(static_cast<std::uint32_t>(i))]);
      std::copy_n(ids.begin(), other.list_pages.size(), other.list_pages.begin());
      for (Bench* bench : {&one, &other}) {
        bench->capture(scalar::kKernels, retention);
        bench->consume(scalar::kKernels);
      }
      REQUIRE(one.count == other.count);
      for (std::int32_t rank = 0; rank < one.count; ++rank) REQUIRE(one.selected(rank) == other.selected(rank));
      for (std::size_t d = 0; d < one.out.size(); ++d)
        REQUIRE(std::bit_cast<std::uint32_t>(one.out[d]) == std::bit_cast<std::uint32_t>(other.out[d]));
      const auto written = std::count_if(other.lists.begin(), other.lists.end(), [](std::int32_t i) { return i >= 0; });
      CHECK(written == other.count);  // nothing beside the list
    }
}

}  // namespace
}  // namespace tessera_loop
