#include "bench/roof.h"

#include <fmt/format.h>
#include <immintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
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
constexpr int kRounds = 8;   // the best counts: a roof is what the machine can do, not what it did
constexpr int kChains = 12;  // enough to hide the latency of two units

[[gnu::target("avx512f")]] float fma_avx512() {
  __m512 sum[kChains];
  for (auto& lane : sum) lane = _mm512_set1_ps(1.0f);
  const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(1e-3f);
  for (std::int64_t round = 0; round < kFmaRounds / kChains; ++round) {
#pragma GCC unroll 12  // or the chains live in memory
    for (int i = 0; i < kChains; ++i) sum[i] = _mm512_fmadd_ps(sum[i], a, b);
  }
  __m512 total = sum[0];
  for (int i = 1; i < kChains; ++i) total = _mm512_add_ps(total, sum[i]);
  return _mm512_reduce_add_ps(total);
}

[[gnu::target("avx2,fma")]] float fma_avx2() {
  __m256 sum[kChains];
  for (auto& lane : sum) lane = _mm256_set1_ps(1.0f);
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(1e-3f);
  for (std::int64_t round = 0; round < kFmaRounds / kChains; ++round) {
#pragma GCC unroll 12  // or the chains live in memory
    for (int i = 0; i < kChains; ++i) sum[i] = _mm256_fmadd_ps(sum[i], a, b);
  }
  float out[8], total = 0;
  for (int i = 1; i < kChains; ++i) sum[0] = _mm256_add_ps(sum[0], sum[i]);
  _mm256_storeu_ps(out, sum[0]);
  for (float value : out) total += value;
  return total;
}

[[gnu::target("avx512f")]] float read_avx512(const float* begin, const float* end) {
  __m512 sum[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
  for (const float* at = begin; at + 64 <= end; at += 64) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) sum[i] = _mm512_add_ps(sum[i], _mm512_load_ps(at + 16 * i));
  }
  return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(sum[0], sum[1]), _mm512_add_ps(sum[2], sum[3])));
}

[[gnu::target("avx2")]] float read_avx2(const float* begin, const float* end) {
  __m256 sum[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
  for (const float* at = begin; at + 32 <= end; at += 32) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) sum[i] = _mm256_add_ps(sum[i], _mm256_load_ps(at + 8 * i));
  }
  float out[8];
  _mm256_storeu_ps(out, _mm256_add_ps(_mm256_add_ps(sum[0], sum[1]), _mm256_add_ps(sum[2], sum[3])));
  return out[0] + out[7];
}

Roof measure_cpu(int threads) {
  std::atomic<float> sink = 0;
  Roof roof{threads, 0, 0};
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return roof;  // 0: unknown
  const bool wide = __builtin_cpu_supports("avx512f") != 0;
  const double lanes = wide ? 16 : 8;
  for (int round = 0; round < kRounds; ++round) {
    const double time = seconds_of([&] { on_threads(threads, [&](int) { sink = wide ? fma_avx512() : fma_avx2(); }); });
    roof.flops = std::max(roof.flops, 2.0 * lanes * static_cast<double>(kFmaRounds) * threads / time);
  }
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  auto* memory = static_cast<float*>(std::aligned_alloc(std::size_t{2} << 20, kBytes));
  madvise(memory, kBytes, MADV_HUGEPAGE);  // as the backend does: else the roof is that of address translation
  std::fill(memory, memory + kBytes / sizeof(float), 1.0f);
  const std::size_t share = kBytes / sizeof(float) / static_cast<std::size_t>(threads) / 64 * 64;
  for (int round = 0; round < kRounds; ++round) {
    const double time = seconds_of([&] {
      on_threads(threads, [&](int i) {
        const float* begin = memory + share * static_cast<std::size_t>(i);
        sink = wide ? read_avx512(begin, begin + share) : read_avx2(begin, begin + share);
      });
    });
    const auto bytes = static_cast<double>(share * sizeof(float)) * threads;
    roof.bytes_per_second = std::max(roof.bytes_per_second, bytes / time);
  }
  std::free(memory);
  return roof;
}

}  // namespace

Roof measure_roof(sdk::Backend& backend) {
  const sdk::DeviceContext context = backend.context();
  if (context.device == sdk::Device::cpu) return measure_cpu(context.executor->width());
  sdk::Ceilings ceilings{};
  if (!backend.measure_ceilings(&ceilings).ok()) return {};
  return {0, ceilings.flops, ceilings.bytes_per_second};
}

Result<PluginPtr<sdk::Backend>> open_backend(const Config& config, Registry& registry) {
  auto backend = registry.create<sdk::Backend>(config.backend, sdk::Device::any);
  if (!backend.ok()) return backend.status();
  TESSERA_TRY(
      (*backend)->bind({.max_rows = 16, .max_slices = 16, .max_logit_rows = 16, .max_context = 16, .max_pages = 16}));
  return backend;
}

Roof better_of(const Roof& a, const Roof& b) {
  return {a.threads, std::max(a.flops, b.flops), std::max(a.bytes_per_second, b.bytes_per_second)};
}

std::string text_of(const Roof& roof) {
  if (roof.flops <= 0) return {};
  return fmt::format("roof{}: {:.0f} GFLOP/s of f32 fused multiply-adds, {:.1f} GB/s of reads",
                     roof.threads > 0 ? fmt::format(" with {} threads", roof.threads) : "", roof.flops * 1e-9,
                     roof.bytes_per_second * 1e-9);
}

}  // namespace tessera
