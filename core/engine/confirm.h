// From the logits of a slice to its tokens, with and without speculation.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sched/scheduler.h"

namespace tessera {

/// Takes a token from each answering row of the slice, in order, and stops after the first that is not the next row's
/// candidate: the rows after it continue what the sequence does not say. `take(logits, position)` samples the token of
/// `position` as if no candidate had ever been, so the tokens are those of a decoding without them; it gives none where
/// the sequence ends with an error, and `ends()` says whether the last one taken ended it.
template <class Take, class Ends>
std::vector<std::int32_t> confirm(const PlanSlice& slice, std::span<const float> logits, Take take, Ends ends) {
  std::vector<std::int32_t> tokens;
  const std::int32_t answers = slice.num_answers(), first = slice.num_rows() - answers;
  const std::size_t vocab = logits.size() / static_cast<std::size_t>(answers);
  for (std::int32_t i = 0; i < answers; ++i) {
    const std::int32_t position = slice.first_position + first + i + 1;
    const std::optional<std::int32_t> token =
        take(logits.subspan(vocab * static_cast<std::size_t>(i), vocab), position);
    if (!token) break;
    tokens.push_back(*token);
    if (ends() || i + 1 == answers || *token != slice.tokens[static_cast<std::size_t>(first + i + 1)]) break;
  }
  return tokens;
}

}  // namespace tessera
