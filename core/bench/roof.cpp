#include "bench/roof.h"

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace tessera {
namespace {

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void on_threads(int threads, const std::function<void(int)>& work) {
  std::vector<std::jthread> pool;
  for (int i = 1; i < threads; ++i) pool.emplace_back(work, i);
  work(0);
}

constexpr std::int64_t kFmaRounds = 40'000'000;
constexpr int kChains = 12;  // enough to hide the latency of two units

[[gnu::target("avx512f")]] float fma_avx512() {
  __m512 sum[kChains];
  for (auto& lane : sum) lane = _mm512_set1_ps(1.0f);
  const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(1e-3f);
  for (std::int64_t round = 0; round < kFmaRounds / kChains; ++round)
    for (auto& lane : sum) lane = _mm512_fmadd_ps(lane, a, b);
  __m512 total = sum[0];
  for (int i = 1; i < kChains; ++i) total = _mm512_add_ps(total, sum[i]);
  return _mm512_reduce_add_ps(total);
}

[[gnu::target("avx2,fma")]] float fma_avx2() {
  __m256 sum[kChains];
  for (auto& lane : sum) lane = _mm256_set1_ps(1.0f);
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(1e-3f);
  for (std::int64_t round = 0; round < kFmaRounds / kChains; ++round)
    for (auto& lane : sum) lane = _mm256_fmadd_ps(lane, a, b);
  float out[8], total = 0;
  for (int i = 1; i < kChains; ++i) sum[0] = _mm256_add_ps(sum[0], sum[i]);
  _mm256_storeu_ps(out, sum[0]);
  for (float value : out) total += value;
  return total;
}

[[gnu::target("avx2")]] std::int64_t read_all(const std::byte* begin, const std::byte* end) {
  __m256i sum[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
  for (const std::byte* at = begin; at + 128 <= end; at += 128)
    for (int i = 0; i < 4; ++i)
      sum[i] = _mm256_add_epi64(sum[i], _mm256_load_si256(reinterpret_cast<const __m256i*>(at + 32 * i)));
  std::int64_t out[4];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out),
                      _mm256_add_epi64(_mm256_add_epi64(sum[0], sum[1]), _mm256_add_epi64(sum[2], sum[3])));
  return out[0] + out[1] + out[2] + out[3];
}

}  // namespace

Roof measure_roof(int threads) {
  std::atomic<float> sink = 0;
  std::atomic<std::int64_t> read_sink = 0;
  Roof roof{threads, 0, 0};
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return roof;  // 0: unknown
  const bool wide = __builtin_cpu_supports("avx512f") != 0;
  const double lanes = wide ? 16 : 8;
  for (int round = 0; round < 3; ++round) {
    const double time = seconds_of([&] { on_threads(threads, [&](int) { sink = wide ? fma_avx512() : fma_avx2(); }); });
    roof.flops = std::max(roof.flops, 2.0 * lanes * static_cast<double>(kFmaRounds) * threads / time);
  }
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(4096, kBytes));
  std::fill(memory, memory + kBytes, std::byte{1});
  const std::size_t share = kBytes / static_cast<std::size_t>(threads) / 128 * 128;
  for (int round = 0; round < 4; ++round) {
    const double time = seconds_of([&] {
      on_threads(threads, [&](int i) {
        const std::byte* begin = memory + share * static_cast<std::size_t>(i);
        read_sink = read_all(begin, begin + share);
      });
    });
    roof.bytes_per_second = std::max(roof.bytes_per_second, static_cast<double>(share) * threads / time);
  }
  std::free(memory);
  return roof;
}

}  // namespace tessera
