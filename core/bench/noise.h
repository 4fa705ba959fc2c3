// Random numbers for benchmarks that must fill gigabytes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/random.h"

namespace tessera {

/// To be repeated. Its length is a prime, so what repeats lies elsewhere each time.
inline constexpr std::size_t kNoiseBlock = 1'048'573;

/// Multiples of 0.001 in [-1, 1].
inline std::vector<float> noise(std::uint64_t seed, std::size_t count = kNoiseBlock) {
  Random random(seed, 13);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.below(2001)) * 1e-3f - 1.0f;
  return values;
}

}  // namespace tessera
