// What the two linear kernels share: asynchronous copies, widening, and the sum over segments.
#pragma once
#include "linear.h"

namespace tessera_cuda {

/// k positions in one 16-byte chunk of a weight.
template <class Weight>
inline constexpr int kChunk = kChunkBytes / static_cast<int>(sizeof(Weight));

/// 16 bytes to shared memory without passing through registers; what lies beyond `valid` bytes becomes 0.
__device__ __forceinline__ void copy_16(void* to, const void* from, int valid = 16) {
  const auto target = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(from), "r"(valid) : "memory");
}

__device__ __forceinline__ void copy_4(void* to, const void* from, int valid) {
  const auto target = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(target), "l"(from), "r"(valid) : "memory");
}

__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until at most `Pending` of this thread's committed groups are under way.
template <int Pending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

/// x[row][k .. k + 4) to shared memory, +0 beyond the matrix.
__device__ __forceinline__ void copy_x_aligned(float* to, const LinearArgs& a, int row, int k) {
  const int valid = row < a.rows ? min(max(a.inputs - k, 0), 4) : 0;
  copy_16(to, valid > 0 ? a.x + row * a.x_stride + k : a.x, valid * 4);
}

__device__ __forceinline__ void copy_x_unaligned(float* to, const LinearArgs& a, int row, int k) {
  for (int i = 0; i < 4; ++i) {
    const bool valid = row < a.rows && k + i < a.inputs;
    copy_4(to + i, valid ? a.x + row * a.x_stride + k + i : a.x, valid ? 4 : 0);
  }
}

__device__ __forceinline__ float low_bf16(std::uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_bf16(std::uint32_t pair) { return __uint_as_float(pair & 0xFFFF0000u); }

/// chain = fma(x[k], w[k], chain) for neighbouring k, ascending.
__device__ __forceinline__ float advance_chain(float chain, const float2& x, const float2& w) {
  return __fmaf_rn(x.y, w.y, __fmaf_rn(x.x, w.x, chain));
}

__device__ __forceinline__ float advance_chain(float chain, const float4& x, const float4& w) {
  chain = __fmaf_rn(x.y, w.y, __fmaf_rn(x.x, w.x, chain));
  return __fmaf_rn(x.w, w.w, __fmaf_rn(x.z, w.z, chain));
}

/// After a split launch: every block calls it with its segment's sums. True in the block that came last, where `sum`
/// then holds the sums over all segments, added in ascending order. `tile` < kSplitTiles.
template <int Count>
__device__ __forceinline__ bool combine_segments(const LinearArgs& a, int tile, int segment, float (&sum)[Count]) {
  __shared__ bool last;
  const std::int64_t step = static_cast<std::int64_t>(Count) * blockDim.x;
  float* partials = a.space.partials + tile * a.segments * step + threadIdx.x;
#pragma unroll
  for (int i = 0; i < Count; ++i) __stcg(partials + segment * step + i * blockDim.x, sum[i]);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(a.space.tickets + tile, 1u) + 1 == a.segments;
  __syncthreads();
  if (!last) return false;
  __threadfence();
#pragma unroll
  for (int i = 0; i < Count; ++i) sum[i] = __ldcg(partials + i * blockDim.x);
  for (int s = 1; s < a.segments; ++s)
#pragma unroll
    for (int i = 0; i < Count; ++i) sum[i] = __fadd_rn(sum[i], __ldcg(partials + s * step + i * blockDim.x));
  if (threadIdx.x == 0) a.space.tickets[tile] = 0;
  return true;
}

}  // namespace tessera_cuda
