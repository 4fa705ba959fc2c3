// For CPU kernels only: one vector of f32 of the instruction set that a file is compiled for (tessera_isa_sources
// defines TESSERA_ISA). Everything is forced inline, in a namespace of that instruction set.
#pragma once
#include <cstdint>

#include "tessera/sdk/numerics.h"

#if defined(TESSERA_ISA_avx512) || defined(TESSERA_ISA_avx2)
#include <immintrin.h>
#endif

namespace tessera::sdk::TESSERA_ISA {

#if defined(TESSERA_ISA_avx512)

struct Vec {
  static constexpr int kWidth = 16;
  __m512 v;
  TESSERA_INLINE static Vec zero() { return {_mm512_setzero_ps()}; }
  TESSERA_INLINE static Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
  TESSERA_INLINE static Vec load(const std::uint16_t* p) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
  }
  TESSERA_INLINE static Vec broadcast(float x) { return {_mm512_set1_ps(x)}; }
  TESSERA_INLINE static Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  TESSERA_INLINE static Vec add(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
  TESSERA_INLINE static Vec mul(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
  TESSERA_INLINE void store(float* p) const { _mm512_storeu_ps(p, v); }
};

#elif defined(TESSERA_ISA_avx2)

struct Vec {
  static constexpr int kWidth = 8;
  __m256 v;
  TESSERA_INLINE static Vec zero() { return {_mm256_setzero_ps()}; }
  TESSERA_INLINE static Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
  TESSERA_INLINE static Vec load(const std::uint16_t* p) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16))};
  }
  TESSERA_INLINE static Vec broadcast(float x) { return {_mm256_set1_ps(x)}; }
  TESSERA_INLINE static Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
  TESSERA_INLINE static Vec add(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
  TESSERA_INLINE static Vec mul(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
  TESSERA_INLINE void store(float* p) const { _mm256_storeu_ps(p, v); }
};

#else

struct Vec {
  static constexpr int kWidth = 1;
  float v;
  TESSERA_INLINE static Vec zero() { return {0.0f}; }
  TESSERA_INLINE static Vec load(const float* p) { return {*p}; }
  TESSERA_INLINE static Vec load(const std::uint16_t* p) { return {widen_bf16(*p)}; }
  TESSERA_INLINE static Vec broadcast(float x) { return {x}; }
  TESSERA_INLINE static Vec fma(Vec a, Vec b, Vec c) { return {fma_f32(a.v, b.v, c.v)}; }
  TESSERA_INLINE static Vec add(Vec a, Vec b) { return {a.v + b.v}; }
  TESSERA_INLINE static Vec mul(Vec a, Vec b) { return {a.v * b.v}; }
  TESSERA_INLINE void store(float* p) const { *p = v; }
};

#endif

/// `N` neighbouring vectors as members, not as an array, so that the compiler keeps all of them in registers.
template <int N>
struct Strip {
  Vec head;
  Strip<N - 1> tail;
  TESSERA_INLINE void clear() { head = Vec::zero(), tail.clear(); }
  template <class Element>
  TESSERA_INLINE void load(const Element* p) {
    head = Vec::load(p), tail.load(p + Vec::kWidth);
  }
  TESSERA_INLINE void fma(Vec x, const Strip& w) { head = Vec::fma(x, w.head, head), tail.fma(x, w.tail); }
  TESSERA_INLINE void add(const float* p) { head = Vec::add(Vec::load(p), head), tail.add(p + Vec::kWidth); }
  TESSERA_INLINE void store(float* p) const { head.store(p), tail.store(p + Vec::kWidth); }
};

template <>
struct Strip<0> {
  TESSERA_INLINE void clear() {}
  template <class Element>
  TESSERA_INLINE void load(const Element*) {}
  TESSERA_INLINE void fma(Vec, const Strip&) {}
  TESSERA_INLINE void add(const float*) {}
  TESSERA_INLINE void store(float*) const {}
};

}  // namespace tessera::sdk::TESSERA_ISA
