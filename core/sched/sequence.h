// What the scheduler remembers of one sequence. Private to core/sched.
#pragma once
#include <cstdint>
#include <vector>

#include "base/sha256.h"
#include "cache/page_pool.h"

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
  std::int32_t cached = -1;         // prompt tokens from the prefix cache at the first admission; -1 before it

  std::int32_t size() const { return static_cast<std::int32_t>(tokens.size()); }
};

inline constexpr std::int32_t blocks_of(std::int32_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

}  // namespace tessera
