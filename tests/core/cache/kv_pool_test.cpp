#include "cache/kv_pool.h"

#include <doctest/doctest.h>

#include "base/random.h"

namespace tessera {
namespace {

TEST_CASE("places in a pool of tens of gigabytes are counted in 64 bits, page after page without gaps") {
  constexpr std::uint64_t kSeed = 20261203;
  CAPTURE(kSeed);
  Random random(kSeed, 2);
  for (int i = 0; i < 1000; ++i) {
    const KvShape shape{1 + static_cast<std::int32_t>(random.below(96)),
                        1 + static_cast<std::int32_t>(random.below(32)),
                        32 * (1 + static_cast<std::int32_t>(random.below(8))), sdk::DType::f32};
    const std::int32_t pages = 2 + static_cast<std::int32_t>(random.below(1'000'000));
    const sdk::KvView view{nullptr, nullptr, shape.dtype, pages, shape.num_layers, shape.num_kv_heads, shape.head_dim};
    const std::int64_t each = page_bytes(shape) / 2 / 4;  // elements of K
    REQUIRE(each == std::int64_t{shape.num_layers} * 16 * shape.num_kv_heads * shape.head_dim);
    const auto page = static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(pages)));
    REQUIRE(view.offset(page, 0, 0, 0) == each * page);
    REQUIRE(view.offset(page, shape.num_layers - 1, 15, shape.num_kv_heads - 1) + shape.head_dim == each * (page + 1));
  }
  const sdk::KvView ouro{nullptr, nullptr, sdk::DType::f32, 4672, 24, 16, 128};  // a burst of 64 requests
  CHECK(ouro.offset(4671, 23, 15, 15) == std::int64_t{4672} * 24 * 16 * 16 * 128 - 128);
  CHECK(ouro.offset(4671, 23, 15, 15) > std::int64_t{1} << 31);
  CHECK(page_bytes({24, 16, 128, sdk::DType::f32}) * 4672 == 29'393'682'432);
}

}  // namespace
}  // namespace tessera
