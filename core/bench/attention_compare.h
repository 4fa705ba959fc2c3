// Two outputs, bit for bit and by size.
#pragma once
#include <cstdint>
#include <span>

namespace tessera {

/// What an inexact variant, and the reference against f64, owe: |found - wanted| <= kTolerance + kTolerance * |wanted|.
inline constexpr double kTolerance = 2e-5;

struct Difference {
  std::int64_t floats = 0;  // with any differing bit
  std::int64_t bits = 0;
  std::int64_t outside = 0;  // beyond the tolerance, or not a number
  double largest = 0;        // |found - wanted|
};

Difference compare_outputs(std::span<const float> found, std::span<const float> wanted);

/// `floats` and `bits` stay 0.
Difference compare_with_oracle(std::span<const float> found, std::span<const double> wanted);

}  // namespace tessera
