// One vector of f32 for the instruction set this file is compiled for. Everything is forced inline.
#pragma once
#include <cstdint>

#include "tessera/sdk/numerics.h"

#if defined(TESSERA_ISA_avx512) || defined(TESSERA_ISA_avx2)
#include <immintrin.h>
#endif

namespace tessera_cpu::TESSERA_ISA {

#if defined(TESSERA_ISA_avx512)

struct Vec {
  static constexpr int kWidth = 16;
  static constexpr int kVectors = 4;  // of one register tile: 64 outputs
  __m512 v;
  TESSERA_INLINE static Vec zero() { return {_mm512_setzero_ps()}; }
  TESSERA_INLINE static Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
  TESSERA_INLINE static Vec load(const std::uint16_t* p) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
  }
  TESSERA_INLINE static Vec broadcast(float x) { return {_mm512_set1_ps(x)}; }
  TESSERA_INLINE static Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  TESSERA_INLINE void store(float* p) const { _mm512_storeu_ps(p, v); }
};

#elif defined(TESSERA_ISA_avx2)

struct Vec {
  static constexpr int kWidth = 8;
  static constexpr int kVectors = 2;  // 16 outputs: 6 rows of them fill the registers
  __m256 v;
  TESSERA_INLINE static Vec zero() { return {_mm256_setzero_ps()}; }
  TESSERA_INLINE static Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
  TESSERA_INLINE static Vec load(const std::uint16_t* p) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16))};
  }
  TESSERA_INLINE static Vec broadcast(float x) { return {_mm256_set1_ps(x)}; }
  TESSERA_INLINE static Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
  TESSERA_INLINE void store(float* p) const { _mm256_storeu_ps(p, v); }
};

#else

struct Vec {
  static constexpr int kWidth = 1;
  static constexpr int kVectors = 4;
  float v;
  TESSERA_INLINE static Vec zero() { return {0.0f}; }
  TESSERA_INLINE static Vec load(const float* p) { return {*p}; }
  TESSERA_INLINE static Vec load(const std::uint16_t* p) { return {tessera::sdk::widen_bf16(*p)}; }
  TESSERA_INLINE static Vec broadcast(float x) { return {x}; }
  TESSERA_INLINE static Vec fma(Vec a, Vec b, Vec c) { return {tessera::sdk::fma_f32(a.v, b.v, c.v)}; }
  TESSERA_INLINE void store(float* p) const { *p = v; }
};

#endif

}  // namespace tessera_cpu::TESSERA_ISA
