// What the scheduler remembers of one sequence. Private to core/sched.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/sha256.h"
#include "cache/page_pool.h"
#include "cache/reference_store.h"
#include "request/request.h"
#include "sched/scheduler.h"

namespace tessera {

struct Sequence {
  std::uint64_t id = 0;
  std::vector<std::int32_t> tokens;  // prompt, then generated
  std::vector<Digest> chain;         // of the full blocks of `tokens`; empty without a prefix cache
  std::vector<PageId> table;         // [block * depths + depth], exactly the blocks that `computed` positions need
  std::int32_t prompt = 0;           // tokens of the prompt
  std::int32_t max_tokens = 0;
  std::int32_t computed = 0;        // leading positions whose KV is written
  std::int32_t most_computed = 0;   // ever; rows below it are recomputed ones
  std::int32_t indexed_blocks = 0;  // leading blocks already offered to the prefix index
  LoopParams rule;
  bool draft_every_row = false;
  bool greedy = false;
  std::vector<std::uint8_t> loops;  // of a looped model: that each position ran, of the prompt and of decoded rows
  struct Pass {                     // rows between two passes
    std::int32_t rows = 0;          // from `computed` on; 0 = none
    std::int32_t depth = 0;         // of the next pass
    float remaining = 1;
    std::vector<std::int32_t> states;
    std::vector<ReferenceLease> references;  // of captured rows, one a row
  } pass;
  struct Round {                             // of speculation: rows drafted one by one, then verified in one slice
    std::int32_t rows = 0;                   // 0 = none
    std::int32_t drafted = 0;                // all of them: the pass is the verification
    std::vector<std::int32_t> tokens;        // of its rows, as far as known: the last token, then candidates
    std::vector<std::int32_t> states;        // of drafted rows, until they are verified
    std::vector<ReferenceLease> references;  // likewise
    bool drafting() const { return drafted < rows; }
  } round;
  struct Flight {                                         // rounds on the device that have not landed
    std::vector<std::vector<ReferenceLease>> references;  // of each, oldest first; one a row where they are sparse
    std::vector<std::int32_t> states;
    std::int32_t rounds() const { return static_cast<std::int32_t>(references.size()); }
  } flight;
  std::int32_t cached = -1;  // prompt tokens from the prefix cache at the first admission; -1 before it

  /// Position of the first row of its next slice.
  std::int32_t next() const { return computed + (round.drafting() ? round.drafted : 0); }
  std::int32_t size() const { return static_cast<std::int32_t>(tokens.size()); }
  /// A looped model decodes the rows from here on one at a time, the first time: each may leave after its own loop.
  std::int32_t decode_from() const { return prompt - rule.decode_tail; }
  bool decided(std::int32_t position) const { return position < static_cast<std::int32_t>(loops.size()); }
  /// Sparse rows run one at a time too: each reads the reference that it wrote two loops before, or a table of its own.
  std::int32_t sparse_from() const { return std::max(rule.sparse_from, decode_from()); }
  bool sparse(std::int32_t position) const { return position >= sparse_from(); }
  /// Whether the device may run its rounds alone.
  bool flies(const SchedulerLimits& limits) const {
    return greedy && speculates(limits, rule) && rule.max == limits.depths;
  }
  /// Loops that a position runs, at most where it is not decided.
  std::int32_t loops_of(std::int32_t position) const {
    return decided(position) ? loops[static_cast<std::size_t>(position)] : rule.max;
  }
};

/// A table [block * depths + depth] as plans show it: [depth * blocks + block].
inline std::vector<PageId> by_depth(const std::vector<PageId>& table, std::size_t depths) {
  std::vector<PageId> pages(table.size());
  const std::size_t blocks = table.size() / depths;
  for (std::size_t i = 0; i < table.size(); ++i) pages[i % depths * blocks + i / depths] = table[i];
  return pages;
}

inline constexpr std::int32_t blocks_of(std::int32_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

}  // namespace tessera
