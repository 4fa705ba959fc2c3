#include "cache/prefix_index.h"

#include <doctest/doctest.h>

#include <numeric>
#include <vector>

namespace tessera {
namespace {

std::vector<std::int32_t> counting(std::size_t size) {
  std::vector<std::int32_t> tokens(size);
  std::iota(tokens.begin(), tokens.end(), 100);
  return tokens;
}

std::vector<Digest> chain_of(const PrefixIndex& index, const std::vector<std::int32_t>& tokens) {
  std::vector<Digest> chain;
  index.extend(chain, tokens);
  return chain;
}

TEST_CASE("a chain covers full blocks only, and each digest depends on everything before it and on the salt") {
  const PrefixIndex index(1, "");
  std::vector<std::int32_t> tokens = counting(47);
  const std::vector<Digest> chain = chain_of(index, tokens);
  REQUIRE(chain.size() == 2);
  CHECK(chain_of(index, counting(15)).empty());
  CHECK(chain[0] != chain_of(PrefixIndex(1, "other"), tokens)[0]);

  tokens[0] += 1;
  const std::vector<Digest> other = chain_of(index, tokens);
  CHECK(other[0] != chain[0]);
  CHECK(other[1] != chain[1]);
}

TEST_CASE("extending a chain piece by piece gives the digests of the whole") {
  const PrefixIndex index(1, "salt");
  const std::vector<std::int32_t> tokens = counting(80);
  std::vector<Digest> chain;
  for (std::size_t size = 0; size <= tokens.size(); size += 5) index.extend(chain, std::span(tokens).first(size));
  CHECK(chain == chain_of(index, tokens));
}

TEST_CASE("a match is the longest run of known leading blocks, with the pages of all depths") {
  PrefixIndex index(2, "");
  const std::vector<Digest> chain = chain_of(index, counting(64));
  CHECK(index.match(chain).empty());
  CHECK(index.insert(chain[0], std::vector<PageId>{5, 9}));
  CHECK(index.insert(chain[1], std::vector<PageId>{1, 0}));
  CHECK(index.insert(chain[3], std::vector<PageId>{2, 3}));
  CHECK(index.match(chain) == std::vector<PageId>{5, 9, 1, 0});
  CHECK(index.match(std::span(chain).first(1)) == std::vector<PageId>{5, 9});
  CHECK(index.match(std::span(chain).subspan(2)).empty());
}

TEST_CASE("the first pages of a digest stay, and forgetting one page forgets its whole block") {
  PrefixIndex index(2, "");
  const std::vector<Digest> chain = chain_of(index, counting(32));
  CHECK(index.insert(chain[0], std::vector<PageId>{5, 9}));
  CHECK_FALSE(index.insert(chain[0], std::vector<PageId>{6, 7}));
  CHECK(index.match(chain) == std::vector<PageId>{5, 9});
  CHECK(index.forget(6).empty());
  CHECK(index.forget(9) == std::vector<PageId>{5, 9});
  CHECK(index.forget(5).empty());
  CHECK(index.size() == 0);
  CHECK(index.match(chain).empty());
  CHECK(index.insert(chain[1], std::vector<PageId>{9, 5}));
}

}  // namespace
}  // namespace tessera
