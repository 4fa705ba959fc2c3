#include "cache/page_pool.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "base/random.h"

namespace tessera {
namespace {

std::vector<PageId> order_of(const PagePool& pool) {
  std::vector<PageId> order;
  for (PageId id = pool.first_available(); id != kNoPage; id = pool.next_available(id)) order.push_back(id);
  return order;
}

TEST_CASE("a fresh pool hands out pages in ascending order, and in a seeded permutation when asked") {
  CHECK(order_of(PagePool(4)) == std::vector<PageId>{0, 1, 2, 3});
  CHECK(order_of(PagePool(0)).empty());
  std::vector<PageId> shuffled = order_of(PagePool(64, 7));
  CHECK(shuffled == order_of(PagePool(64, 7)));
  CHECK(shuffled != order_of(PagePool(64, 8)));
  CHECK(shuffled != order_of(PagePool(64)));
  std::sort(shuffled.begin(), shuffled.end());
  CHECK(shuffled == order_of(PagePool(64)));
}

TEST_CASE("references keep a page in use until the last one is released") {
  PagePool pool(3);
  pool.take(1);
  pool.share(1);
  CHECK(pool.references(1) == 2);
  CHECK(pool.in_use() == 1);
  CHECK(order_of(pool) == std::vector<PageId>{0, 2});
  pool.release(1);
  CHECK(pool.in_use() == 1);
  pool.release(1);
  CHECK(pool.in_use() == 0);
  CHECK(pool.available() == 3);
  CHECK(order_of(pool) == std::vector<PageId>{0, 2, 1});
}

TEST_CASE("plain pages come before cached ones, which come least recently released first") {
  PagePool pool(4);
  for (PageId id = 0; id < 4; ++id) pool.take(id);
  pool.set_cached(2, true);
  pool.set_cached(0, true);
  for (const PageId id : {2, 0, 3, 1}) pool.release(id);
  CHECK(order_of(pool) == std::vector<PageId>{3, 1, 2, 0});

  pool.share(2);  // resurrected with its content, then the most recently released one
  CHECK(pool.cached(2));
  pool.release(2);
  CHECK(order_of(pool) == std::vector<PageId>{3, 1, 0, 2});

  pool.set_cached(0, false);
  CHECK(order_of(pool) == std::vector<PageId>{3, 1, 0, 2});
  pool.take(0);
  CHECK(order_of(pool) == std::vector<PageId>{3, 1, 2});
}

TEST_CASE("random operations agree with a model that sorts lists") {
  const std::uint64_t seed = 20240611;
  INFO("seed ", seed);
  Random random(seed);
  const std::int32_t size = 9;
  PagePool pool(size);
  std::vector<std::int32_t> references(size, 0);
  std::vector<bool> cached(size, false);
  std::vector<PageId> plain, kept;
  for (PageId id = 0; id < size; ++id) plain.push_back(id);
  const auto drop = [&](PageId id) {
    std::erase(plain, id);
    std::erase(kept, id);
  };
  for (int step = 0; step < 5000; ++step) {
    const auto id = static_cast<PageId>(random.below(size));
    const auto i = static_cast<std::size_t>(id);
    const std::uint32_t what = random.below(4);
    if (what == 0 && references[i] == 0 && !cached[i]) {
      pool.take(id);
      drop(id);
      references[i] = 1;
    } else if (what == 1) {
      pool.share(id);
      drop(id);
      ++references[i];
    } else if (what == 2 && references[i] > 0) {
      pool.release(id);
      if (--references[i] == 0) (cached[i] ? kept : plain).push_back(id);
    } else if (what == 3) {
      const bool now = random.below(2) == 1;
      pool.set_cached(id, now);
      if (references[i] == 0 && now != cached[i]) {
        drop(id);
        (now ? kept : plain).push_back(id);
      }
      cached[i] = now;
    }
    std::vector<PageId> expected = plain;
    expected.insert(expected.end(), kept.begin(), kept.end());
    REQUIRE(order_of(pool) == expected);
    REQUIRE(pool.available() == static_cast<std::int32_t>(expected.size()));
    REQUIRE(pool.references(id) == references[i]);
  }
}

}  // namespace
}  // namespace tessera
