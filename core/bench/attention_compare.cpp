#include "bench/attention_compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace tessera {
namespace {

void judge(double found, double wanted, Difference& difference) {
  const double error = std::abs(found - wanted);
  if (!(error <= kTolerance + kTolerance * std::abs(wanted))) ++difference.outside;  // a NaN is outside
  difference.largest = std::max(difference.largest, std::isnan(error) ? HUGE_VAL : error);
}

}  // namespace

Difference compare_outputs(std::span<const float> found, std::span<const float> wanted) {
  check(found.size() == wanted.size(), "outputs of {} and {} elements", found.size(), wanted.size());
  Difference difference;
  if (std::memcmp(found.data(), wanted.data(), found.size_bytes()) == 0) return difference;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(found[i]) ^ std::bit_cast<std::uint32_t>(wanted[i]);
    if (bits == 0) continue;
    ++difference.floats;
    difference.bits += std::popcount(bits);
    judge(double{found[i]}, double{wanted[i]}, difference);
  }
  return difference;
}

Difference compare_with_oracle(std::span<const float> found, std::span<const double> wanted) {
  check(found.size() == wanted.size(), "outputs of {} and {} elements", found.size(), wanted.size());
  Difference difference;
  for (std::size_t i = 0; i < found.size(); ++i) judge(double{found[i]}, wanted[i], difference);
  return difference;
}

}  // namespace tessera
