#include "variants.h"

#include <doctest/doctest.h>

#include <set>

using namespace tessera_exact;

TEST_CASE("there are 36 exact variants, 12 online ones and auto, each listed once and parsed back") {
  int exact = 0, online = 0;
  std::set<std::string> seen;
  for (const std::string& name : variant_names()) {
    Variant variant;
    REQUIRE_MESSAGE(parse_variant(name, &variant), name);
    exact += variant.family == Family::exact ? 1 : 0;
    online += variant.family == Family::online ? 1 : 0;
    CHECK(seen.insert(name).second);
  }
  CHECK(exact == 36);
  CHECK(online == 12);
  CHECK(seen.size() == 49);
  CHECK(variant_names().front() == "auto");
}

TEST_CASE("a name says its tile and options, in any order") {
  Variant variant;
  REQUIRE(parse_variant("exact-q2-k16-cache-hybrid", &variant));
  CHECK(variant.family == Family::exact);
  CHECK(variant.query_rows == 2);
  CHECK(variant.tile_keys == 16);
  CHECK(variant.hybrid);
  CHECK(variant.cache);
  REQUIRE(parse_variant("exact", &variant));
  CHECK(variant.query_rows == 4);
  CHECK(variant.tile_keys == 64);
}

TEST_CASE("what is no variant is refused: other sizes, unknown or doubled suffixes, missing parts, stray dashes") {
  for (const char* name :
       {"", "Auto", "exact-q3-k16", "exact-q4", "q4", "exact-q4-k64-", "exact-q4-k64-cache-cache", "exact-q4-k64-fast",
        "q4-k64-exact", "-q4-k64", "exact-exact-q4-k64", "q1-k16-hybrid", "auto-cache", "exact-cache", "q4-k064"}) {
    Variant variant;
    CHECK_MESSAGE(!parse_variant(name, &variant), name);
  }
}
