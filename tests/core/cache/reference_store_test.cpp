#include "cache/reference_store.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "base/random.h"
#include "support/aborts.h"

namespace tessera {
namespace {

TEST_CASE("a stale plan of an earlier owner cannot touch a slot that another sequence has now") {
  ReferenceStore store(1);
  const ReferenceLease a = store.reserve({0}, 1, 10);
  store.captured(a);
  CHECK(store.readable(a));
  CHECK(store.release(a));
  const ReferenceLease b = store.reserve({0}, 2, 10);
  CHECK(b.slot == a.slot);
  CHECK(b.incarnation > a.incarnation);
  CHECK_FALSE(store.live(a));
  CHECK_FALSE(store.readable(a));
  CHECK(store.live(b));
  CHECK_FALSE(store.readable(b));  // not captured yet
}

TEST_CASE("a delayed release with an old lease of the same sequence and position frees nothing") {
  ReferenceStore store(2);
  const ReferenceLease old = store.reserve({0}, 7, 42);
  CHECK(store.release(old));
  const ReferenceLease again = store.reserve({0}, 7, 42);
  store.captured(again);
  CHECK_FALSE(store.release(old));
  CHECK(store.outstanding() == 1);
  CHECK(store.readable(again));
  CHECK(store.release(again));
  CHECK_FALSE(store.release(again));  // twice
  CHECK(store.outstanding() == 0);
}

TEST_CASE("in a storm of leases no slot is ever readable by anyone but its owner") {
  constexpr std::uint64_t kSeed = 20260908;
  CAPTURE(kSeed);
  Random random(kSeed, 1);
  ReferenceStore store(5, 12, kSeed);
  std::set<std::int32_t> taken;                                   // list pages
  std::map<std::int32_t, std::pair<ReferenceLease, bool>> owned;  // slot -> its lease, captured
  std::vector<ReferenceLease> stale;
  for (int step = 0; step < 200'000; ++step) {
    const std::uint32_t choice = random.below(4);
    if (choice == 0 && !store.free().empty()) {
      const std::int32_t slot = store.free()[random.below(static_cast<std::uint32_t>(store.free().size()))];
      REQUIRE_FALSE(owned.contains(slot));
      RowReference reference{slot, {}};
      for (std::uint32_t i = random.below(4); i > 0 && taken.size() < 12; --i) {
        const auto& free = store.free_pages();
        const std::int32_t page = free[free.size() - 1 - reference.pages.size()];
        reference.pages.push_back(page);
        REQUIRE(taken.insert(page).second);
      }
      owned[slot] = {store.reserve(reference, random.below(4), random.below(4)), false};
      REQUIRE(store.reference(owned[slot].first) == reference);
    } else if (choice == 1 && !owned.empty()) {
      auto& [lease, captured] = owned.begin()->second;
      if (!captured) store.captured(lease);
      captured = true;
    } else if (choice == 2 && !owned.empty()) {
      const auto last = std::prev(owned.end());
      for (const std::int32_t page : store.reference(last->second.first).pages) REQUIRE(taken.erase(page) == 1);
      REQUIRE(store.release(last->second.first));
      if (stale.size() < 64)
        stale.push_back(last->second.first);
      else
        stale[random.below(64)] = last->second.first;
      owned.erase(last);
    } else if (!stale.empty()) {
      const ReferenceLease& lease = stale[random.below(static_cast<std::uint32_t>(stale.size()))];
      REQUIRE_FALSE(store.live(lease));
      REQUIRE_FALSE(store.release(lease));
    }
    for (const auto& [slot, state] : owned) REQUIRE(store.readable(state.first) == state.second);
    REQUIRE(store.outstanding() == std::ssize(owned));
    REQUIRE(store.outstanding_pages() == std::ssize(taken));
  }
}

TEST_CASE("list pages are held under their lease, return with it once, and a stale lease returns none") {
  ReferenceStore store(2, 6);
  const ReferenceLease a = store.reserve({0, {5, 0, 3}}, 1, 10);
  CHECK(store.reference(a) == RowReference{0, {5, 0, 3}});
  CHECK(store.outstanding_pages() == 3);
  CHECK(aborts([&] { store.reserve({1, {3}}, 2, 0); }));        // somebody's
  CHECK(aborts([&] { store.reserve({1, {1, 2, 1}}, 2, 0); }));  // twice
  CHECK(aborts([&] { store.reserve({1, {6}}, 2, 0); }));        // there is none
  CHECK(store.release(a));
  CHECK(store.outstanding_pages() == 0);
  CHECK(aborts([&] { (void)store.reference(a); }));
  const ReferenceLease b = store.reserve({0, {3, 4}}, 2, 10);
  CHECK_FALSE(store.release(a));
  CHECK(store.outstanding_pages() == 2);
  CHECK(store.reference(b) == RowReference{0, {3, 4}});
  CHECK(store.release(b));
  CHECK_FALSE(store.release(b));
  CHECK(store.outstanding_pages() == 0);
  CHECK(store.free_pages().size() == 6);
  CHECK(store.pages_high_water() == 3);
  CHECK(store.list_pages() == 6);
}

TEST_CASE("what is drawn for a plan is free, differs, and takes nothing before it is reserved") {
  ReferenceStore store(3, 7, 20261203);
  ReferenceDraw draw(store);
  const RowReference a = draw.take(2), b = draw.take(0), c = draw.take(5);
  CHECK(store.outstanding() + store.outstanding_pages() == 0);
  CHECK(b.pages.empty());
  CHECK(aborts([&] { draw.take(0); }));                                                // a fourth slot
  for (const RowReference* reference : {&c, &a, &b}) store.reserve(*reference, 1, 1);  // in any order
  CHECK(store.outstanding_pages() == 7);
  CHECK(aborts([&] { ReferenceDraw(store).take(1); }));
}

TEST_CASE("a million leases with lists take no memory but a counter, and no page is lost") {
  ReferenceStore store(3, 9, 1);
  ReferenceLease last;
  for (int i = 0; i < 1'000'000; ++i) {
    last = store.reserve(ReferenceDraw(store).take(i % 10), 1, 1);
    REQUIRE(store.release(last));
  }
  CHECK(store.outstanding() == 0);
  CHECK(store.outstanding_pages() == 0);
  CHECK(store.free().size() == 3);
  CHECK(store.free_pages().size() == 9);
  CHECK(store.free_pages().capacity() < 32);
  CHECK(store.high_water() == 1);
  CHECK(store.pages_high_water() == 9);
  CHECK(last.incarnation == 1'000'000);
  const std::set<std::int32_t> pages(store.free_pages().begin(), store.free_pages().end());
  CHECK(pages.size() == 9);
}

}  // namespace
}  // namespace tessera
