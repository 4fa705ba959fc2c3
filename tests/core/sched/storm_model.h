// What a storm knows of each sequence, and what the KV of a position is a function of.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cache/page_pool.h"
#include "request/request.h"
#include "sched/scheduler.h"

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
  std::vector<RowReference> references{};             // that its captured rows of steps hold
  std::deque<std::vector<RowReference>> in_flight{};  // that each round in flight holds, oldest first

  bool flies() const { return !in_flight.empty(); }
  template <class Visit>
  void for_each_reference(Visit visit) const {
    for (const RowReference& reference : references) visit(reference);
    for (const auto& round : in_flight)
      for (const RowReference& reference : round) visit(reference);
  }
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

/// A list page for every `each` positions, and as many as `sequences` need in the worst case and a few more: rows would
/// be short of them if they were not accounted for.
inline void give_lists(SchedulerLimits& limits, std::int32_t each, std::int32_t sequences, std::int32_t more) {
  std::vector<std::int32_t> pages;
  for (std::int32_t position = 0; position < limits.max_context; ++position) pages.push_back(1 + position / each);
  limits.num_list_pages = pages.back() * limits.round_rows() * sequences + more;
  limits.list_pages = std::make_shared<const std::vector<std::int32_t>>(std::move(pages));
}

/// Which row's list, and which part of it, was written to each list page last.
class ListHolders {
 public:
  using Row = std::pair<SequenceId, std::int32_t>;
  /// A captured row writes its pages, and later passes must find them as they were.
  void see(const RowReference& reference, const Row& row, bool captured) {
    for (std::size_t i = 0; i < reference.pages.size(); ++i) {
      auto& page = pages_[reference.pages[i]];
      if (captured) page = {row, i};
      REQUIRE(page == std::pair(row, i));
    }
  }

 private:
  std::map<std::int32_t, std::pair<Row, std::size_t>> pages_;
};

}  // namespace tessera
