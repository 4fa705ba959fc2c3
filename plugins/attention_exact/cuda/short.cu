// Rows that see 32 positions at most, in steps of few rows: one warp a (row, head), one lane a position, no shared
// memory and no barrier, because such a step is nothing but latency.
#include "launch.h"
#include "tessera/sdk/cuda.h"
#include "tessera/sdk/kv.h"
#include "tessera/sdk/numerics.h"

namespace tessera_exact {

namespace sdk = tessera::sdk;

namespace {

constexpr int kWarps = 2;  // of a block: the fewer, the more multiprocessors share the work

/// A whole dot product in the reference tree: lane l of the reference is component l and its successors l + 32, ...
template <int kDim>
__device__ float dot(const float* q, const float* key, float scale) {
  float lane[32];
#pragma unroll
  for (int block = 0; block < kDim; block += 32)
#pragma unroll
    for (int d = 0; d < 32; d += 4) {
      const float4 a = *reinterpret_cast<const float4*>(q + block + d);
      const float4 b = *reinterpret_cast<const float4*>(key + block + d);
      lane[d] = block == 0 ? __fmul_rn(a.x, b.x) : __fmaf_rn(a.x, b.x, lane[d]);
      lane[d + 1] = block == 0 ? __fmul_rn(a.y, b.y) : __fmaf_rn(a.y, b.y, lane[d + 1]);
      lane[d + 2] = block == 0 ? __fmul_rn(a.z, b.z) : __fmaf_rn(a.z, b.z, lane[d + 2]);
      lane[d + 3] = block == 0 ? __fmul_rn(a.w, b.w) : __fmaf_rn(a.w, b.w, lane[d + 3]);
    }
#pragma unroll
  for (int i = 0; i < 16; ++i) lane[i] = __fadd_rn(lane[i], lane[i + 16]);
#pragma unroll
  for (int i = 0; i < 8; ++i) lane[i] = __fadd_rn(lane[i], lane[i + 8]);
#pragma unroll
  for (int i = 0; i < 4; ++i) lane[i] = __fadd_rn(lane[i], lane[i + 4]);
  return __fmul_rn(__fadd_rn(__fadd_rn(lane[0], lane[2]), __fadd_rn(lane[1], lane[3])), scale);
}

template <int kDim>
__global__ __launch_bounds__(32 * kWarps) void short_kernel(const StepArgs args) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int index = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  const int row = index / args.q_heads, head = index % args.q_heads;
  if (row >= args.num_rows) return;
  const int length = args.positions[row] + 1;
  const std::int32_t* pages = args.pages + args.slices[args.num_slices == 1 ? 0 : args.row_slice[row]].first_page;
  const int width = args.kv_heads * kDim;
  // Lanes past the end look at the last position: what they find is not used.
  const int own = min(lane, length - 1);
  const std::int64_t offset =
      pages[own / sdk::kPageSize] * args.page_stride + own % sdk::kPageSize * width + head / args.group * kDim;
  const float score = dot<kDim>(args.q + row * args.q_stride + head * kDim, args.k + offset, args.scale);
  if (args.emitted != nullptr && lane < length)
    args.emitted[(static_cast<std::int64_t>(row) * args.q_heads + head) * args.emitted_stride + lane] = score;

  float largest = lane < length ? score : -INFINITY;
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(sdk::kWholeWarp, largest, distance));
  const float weight = lane < length ? sdk::exp_f32(__fsub_rn(score, largest)) : 0.0f;
  const float inverse = __fdiv_rn(1.0f, sdk::warp_fold_32(weight));  // the other seven trees of the segment are +0

  float sums[kDim / 32] = {};
#pragma unroll 8
  for (int j = 0; j < length; ++j) {
    const float* value = args.v + __shfl_sync(sdk::kWholeWarp, offset, j);
    const float e = __shfl_sync(sdk::kWholeWarp, weight, j);
#pragma unroll
    for (int i = 0; i < kDim / 32; ++i) sums[i] = __fmaf_rn(e, value[lane + 32 * i], sums[i]);
  }
#pragma unroll
  for (int i = 0; i < kDim / 32; ++i)
    args.out[row * args.out_stride + head * kDim + lane + 32 * i] = __fmul_rn(sums[i], inverse);
}

using Kernel = void (*)(const StepArgs);

Kernel kernel_of(std::int32_t head_dim) {
  switch (head_dim) {
    case 32: return short_kernel<32>;
    case 64: return short_kernel<64>;
    case 96: return short_kernel<96>;
    default: return short_kernel<128>;
  }
}

}  // namespace

sdk::Status launch_short(const StepArgs& args, void* stream) {
  const auto blocks = static_cast<unsigned>((args.num_rows * args.q_heads + kWarps - 1) / kWarps);
  kernel_of(args.head_dim)<<<blocks, 32 * kWarps, 0, static_cast<cudaStream_t>(stream)>>>(args);
  return sdk::cuda_status(cudaGetLastError(), "attention_exact: launching the kernel of short rows");
}

void list_short(std::int32_t head_dim, sdk::KernelList& list) {
  list.add("short rows", reinterpret_cast<const void*>(kernel_of(head_dim)), 32 * kWarps);
}

}  // namespace tessera_exact
