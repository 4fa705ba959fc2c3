// The arithmetic every kernel shares (docs/numerics.md). Header-only, no libm but fmaf and sqrtf, equal bits
// everywhere.
//
// All functions are forced inline: a file compiled for AVX-512 must never leave an out-of-line copy for the linker to
// hand to baseline code. Compile with -ffp-contract=off, and with -fmad=false under nvcc.
#pragma once
#include <cstdint>

#if defined(__CUDACC__)
#define TESSERA_INLINE __host__ __device__ __forceinline__
#else
#define TESSERA_INLINE [[gnu::always_inline]] inline
#endif

namespace tessera::sdk {

inline constexpr int kLinearSegment = 512;     // k positions of one FMA chain of a linear layer
inline constexpr int kAttentionSegment = 256;  // key positions of one attention segment
inline constexpr int kLanes = 32;

/// One rounding.
TESSERA_INLINE float fma_f32(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

/// std::bit_cast, which nvcc does not let kernels call.
template <class To, class From>
TESSERA_INLINE To bit_cast(From value) {
  return __builtin_bit_cast(To, value);
}

/// An integer that ascends with the number; -0 is +0, and NaN has a place too.
TESSERA_INLINE std::uint32_t rank_key(float value) {
  const auto bits = bit_cast<std::uint32_t>(value + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
/// The number of a key.
TESSERA_INLINE float number_of(std::uint32_t key) {
  return bit_cast<float>((key & 0x80000000u) != 0 ? key & 0x7FFFFFFFu : ~key);
}

TESSERA_INLINE float widen_bf16(std::uint16_t bits) { return bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

/// IEEE binary16, subnormals, infinities and NaN included; exact.
TESSERA_INLINE float widen_f16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 31u, mantissa = bits & 1023u;
  const float tiny = static_cast<float>(mantissa) * 0x1p-24f;  // its value when the exponent is 0
  const std::uint32_t wide = exponent == 31 ? 255u : exponent + 112u;
  return bit_cast<float>(sign | (exponent == 0 ? bit_cast<std::uint32_t>(tiny) : wide << 23 | mantissa << 13));
}

/// e^x within 2 ulp over the whole range, exact at 0, +inf above 88.73, +0 below -103.98, NaN for NaN.
/// n = round(x / ln 2), r = x - n ln 2 in two fmas, Taylor to r^7 (|r| <= 0.3466, so the rest is < 6e-9), then two
/// exact powers of two so that only the last product rounds where the result is subnormal.
TESSERA_INLINE float exp_f32(float x) {
  constexpr float kLog2E = 0x1.715476p+0f, kLn2High = 0x1.62e400p-1f, kLn2Low = 0x1.7f7d1cp-20f;
  constexpr float kRound = 0x1.8p23f;  // adding it rounds to an integer held in the low mantissa bits
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  const float shifted = fma_f32(x, kLog2E, kRound);
  const std::int32_t n = bit_cast<std::int32_t>(shifted) - bit_cast<std::int32_t>(kRound);
  const float whole = shifted - kRound;
  const float r = fma_f32(whole, -kLn2Low, fma_f32(whole, -kLn2High, x));
  float p = 0x1.a01a02p-13f;           // 1/5040
  p = fma_f32(p, r, 0x1.6c16c2p-10f);  // 1/720
  p = fma_f32(p, r, 0x1.111112p-7f);   // 1/120
  p = fma_f32(p, r, 0x1.555556p-5f);   // 1/24
  p = fma_f32(p, r, 0x1.555556p-3f);   // 1/6
  p = fma_f32(p, r, 0.5f);
  p = fma_f32(p, r, 1.0f);
  p = fma_f32(p, r, 1.0f);
  const std::int32_t half = n >> 1;
  const float scale_a = bit_cast<float>(static_cast<std::uint32_t>(half + 127) << 23);
  const float scale_b = bit_cast<float>(static_cast<std::uint32_t>(n - half + 127) << 23);
  return p * scale_a * scale_b;
}

/// g / (1 + e^-g)
TESSERA_INLINE float silu_f32(float g) { return g / (1.0f + exp_f32(-g)); }

/// 1 / (1 + e^-x)
TESSERA_INLINE float sigmoid_f32(float x) { return 1.0f / (1.0f + exp_f32(-x)); }

/// The tree +16, +8, +4, +2, +1 over 32 lanes; destroys `lanes`.
TESSERA_INLINE float fold_32(float* lanes) {
  for (int width = 16; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  return lanes[0];
}

/// The dot product of attention: lane d (0..31) holds q[d] k[d], then fma with d + 32, d + 64, ...; lanes fold; times
/// scale.
TESSERA_INLINE float attention_score(const float* q, const float* k, std::int32_t head_dim, float scale) {
  float lanes[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    float sum = q[lane] * k[lane];
    for (std::int32_t d = lane + kLanes; d < head_dim; d += kLanes) sum = fma_f32(q[d], k[d], sum);
    lanes[lane] = sum;
  }
  return fold_32(lanes) * scale;
}

/// 256 lanes: eight trees of 32 (lanes 0..31, 32..63, ...), then their 8 results by the same tree (+4, +2, +1).
TESSERA_INLINE float fold_256(float* lanes) {
  float partial[8];
  for (int group = 0; group < 8; ++group) partial[group] = fold_32(lanes + group * kLanes);
  for (int width = 4; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) partial[i] += partial[i + width];
  return partial[0];
}

}  // namespace tessera::sdk
