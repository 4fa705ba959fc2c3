// Candidates of prompt lookup: what followed the same tokens before.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

/// At most `most` tokens that followed the latest earlier place of the sequence's last 3 tokens, or of its last 2.
inline std::vector<std::int32_t> look_up(std::span<const std::int32_t> tokens, std::int32_t most) {
  for (const std::ptrdiff_t length : {3, 2}) {
    const std::ptrdiff_t tail = std::ssize(tokens) - length;
    for (std::ptrdiff_t start = tail - 1; start >= 0 && most > 0; --start) {
      if (!std::equal(tokens.begin() + start, tokens.begin() + start + length, tokens.begin() + tail)) continue;
      const auto first = tokens.begin() + start + length;
      return {first, first + std::min<std::ptrdiff_t>(most, tokens.end() - first)};
    }
  }
  return {};
}

}  // namespace tessera
