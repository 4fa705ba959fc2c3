// Softmax weights of one segment of a list, or of all positions, by one warp.
#pragma once
#include "tessera/sdk/cuda.h"
#include "tessera/sdk/numerics.h"

namespace tessera_loop {

namespace sdk = tessera::sdk;

constexpr int kSegment = sdk::kAttentionSegment;
constexpr int kEach = kSegment / 32;  // ranks of a lane: lane, lane + 32, ...

/// fold_256 over a warp whose lane holds ranks lane, lane + 32, ...; every lane gets the result.
__device__ inline float warp_fold_256(const float (&lanes)[kEach]) {
  float sum = sdk::warp_fold_8x32(lanes);
  for (int width = 16; width >= 4; width /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(sdk::kWholeWarp, sum, width));
  return sum;
}

/// This lane's ranks of the segment that begins at `first`; past `count`, the last one.
__device__ inline void ranks_of(std::int32_t first, std::int32_t count, std::int32_t (&ranks)[kEach]) {
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    ranks[i] = min(first + i * 32 + static_cast<std::int32_t>(threadIdx.x) % 32, count - 1);
}

/// exp(score - largest) of this lane's ranks of the segment that begins at `first`, whose scores are at `places`; +0
/// past `count`.
__device__ inline void weights_of(const float* scores, const std::int32_t (&places)[kEach], std::int32_t first,
                                  std::int32_t count, float largest, float (&weights)[kEach]) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    weights[i] = 0.0f;
    if (first + i * 32 + static_cast<std::int32_t>(threadIdx.x) % 32 < count)
      weights[i] = sdk::exp_f32(__fsub_rn(scores[places[i]], largest));
  }
}

}  // namespace tessera_loop
