// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
#pragma once
#include <array>
#include <cstdint>

namespace tessera {

/// Four words that are a function of (key, counter) alone.
constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 2> key, std::array<std::uint32_t, 4> counter) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

/// A seeded stream for tests, checks and random weights; not for sampling tokens (sample/draw.h is).
class Random {
 public:
  explicit Random(std::uint64_t seed, std::uint64_t stream = 0)
      : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)}, stream_(stream) {}

  std::uint32_t bits() {
    if (used_ == 4) {
      words_ = philox(key_, {static_cast<std::uint32_t>(count_), static_cast<std::uint32_t>(count_ >> 32),
                             static_cast<std::uint32_t>(stream_), static_cast<std::uint32_t>(stream_ >> 32)});
      ++count_;
      used_ = 0;
    }
    return words_[used_++];
  }
  /// Two words, the high one drawn first.
  std::uint64_t bits_64() {
    const std::uint64_t high = bits();
    return high << 32 | bits();
  }
  /// Uniform in [0, n), n > 0.
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>((std::uint64_t{bits()} * n) >> 32); }
  /// Uniform in [0, 1).
  double real() { return bits() * 0x1p-32; }
  /// Uniform in [low, high).
  float real(float low, float high) { return low + (high - low) * static_cast<float>(bits() >> 8) * 0x1p-24f; }

 private:
  std::array<std::uint32_t, 2> key_;
  std::uint64_t stream_;
  std::uint64_t count_ = 0;
  std::array<std::uint32_t, 4> words_{};
  unsigned used_ = 4;
};

}  // namespace tessera
