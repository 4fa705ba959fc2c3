#include "cache/reference_store.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/random.h"

namespace tessera {
namespace {

TEST_CASE("a stale plan of an earlier owner cannot touch a slot that another sequence has now") {
  ReferenceStore store(1);
  const ReferenceLease a = store.reserve(0, 1, 10);
  store.captured(a);
  CHECK(store.readable(a));
  CHECK(store.release(a));
  const ReferenceLease b = store.reserve(0, 2, 10);
  CHECK(b.slot == a.slot);
  CHECK(b.incarnation > a.incarnation);
  CHECK_FALSE(store.live(a));
  CHECK_FALSE(store.readable(a));
  CHECK(store.live(b));
  CHECK_FALSE(store.readable(b));  // not captured yet
}

TEST_CASE("a delayed release with an old lease of the same sequence and position frees nothing") {
  ReferenceStore store(2);
  const ReferenceLease old = store.reserve(0, 7, 42);
  CHECK(store.release(old));
  const ReferenceLease again = store.reserve(0, 7, 42);
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
  ReferenceStore store(5);
  std::map<std::int32_t, std::pair<ReferenceLease, bool>> owned;  // slot -> its lease, captured
  std::vector<ReferenceLease> stale;
  for (int step = 0; step < 200'000; ++step) {
    const std::uint32_t choice = random.below(4);
    if (choice == 0 && !store.free().empty()) {
      const std::int32_t slot = store.free()[random.below(static_cast<std::uint32_t>(store.free().size()))];
      REQUIRE_FALSE(owned.contains(slot));
      owned[slot] = {store.reserve(slot, random.below(4), random.below(4)), false};
    } else if (choice == 1 && !owned.empty()) {
      auto& [lease, captured] = owned.begin()->second;
      if (!captured) store.captured(lease);
      captured = true;
    } else if (choice == 2 && !owned.empty()) {
      const auto last = std::prev(owned.end());
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
  }
}

TEST_CASE("a million leases take no memory but a counter") {
  ReferenceStore store(3);
  ReferenceLease last;
  for (int i = 0; i < 1'000'000; ++i) {
    last = store.reserve(store.free().back(), 1, 1);
    REQUIRE(store.release(last));
  }
  CHECK(store.outstanding() == 0);
  CHECK(store.free().size() == 3);
  CHECK(store.high_water() == 1);
  CHECK(last.incarnation == 1'000'000);
}

}  // namespace
}  // namespace tessera
