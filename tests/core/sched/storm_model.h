// What a storm knows of each sequence, and what the KV of a position is a function of.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "cache/page_pool.h"
#include "request/request.h"

namespace tessera {

struct Model {  // of one sequence
  std::vector<std::int32_t> tokens;
  std::size_t prompt = 0;
  std::int32_t max_tokens = 0;
  std::int32_t computed = 0;
  std::vector<PageId> table;  // of its last slice
  bool running = false;
  LoopParams rule{};
  bool draft_every_row = false;
  bool greedy = false;
  std::vector<std::int32_t> loops{};  // that each decided position runs
  std::int32_t pass_rows = 0;         // between two passes
  std::int32_t pass_depth = 0;
  std::vector<std::int32_t> candidates{};  // of a round
  std::int32_t round_rows = 0;
  std::int32_t drafted = 0;
  std::vector<std::int32_t> states{};                 // rows of the state bank that it holds
  std::vector<std::int32_t> references{};             // slots that its captured rows of steps hold
  std::deque<std::vector<std::int32_t>> in_flight{};  // slots of each round in flight, oldest first

  bool flies() const { return !in_flight.empty(); }
  std::int32_t decode_from() const { return static_cast<std::int32_t>(prompt) - rule.decode_tail; }
  bool sparse(std::int32_t position) const { return position >= std::max(rule.sparse_from, decode_from()); }
  /// Known tokens, then the round's candidates; each with the mode of its row.
  std::vector<std::int32_t> marked(std::size_t count, bool modes) const {
    std::vector<std::int32_t> all = tokens;
    all.insert(all.end(), candidates.begin(), candidates.end());
    REQUIRE(count <= all.size());
    all.resize(count);
    for (std::size_t p = 0; p < count && modes; ++p) all[p] += sparse(static_cast<std::int32_t>(p)) ? 5000 : 0;
    return all;
  }
  /// Of the first positions; rows of a round run all loops.
  std::vector<std::int32_t> loops_of(std::size_t count) const {
    std::vector<std::int32_t> all = loops;
    all.resize(count, rule.max);
    return all;
  }
  /// Its rows between two passes leave, or are dropped.
  void end_pass() {
    pass_rows = pass_depth = 0;
    states.clear(), references.clear();
  }
  void end_round() {
    end_pass();
    candidates.clear(), round_rows = drafted = 0;
  }
};

/// What the KV of the last of `tokens` depends on: them, the loops of those before it, and its own depth.
inline std::uint64_t content(std::span<const std::int32_t> tokens, std::span<const std::int32_t> loops,
                             std::size_t depth) {
  std::uint64_t hash = 0x9E3779B97F4A7C15U + depth;
  const auto mix = [&](std::int32_t value) { hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x100000001B3U + 1; };
  for (const std::int32_t token : tokens) mix(token);
  for (const std::int32_t count : loops) mix(count);
  return hash;
}

}  // namespace tessera
