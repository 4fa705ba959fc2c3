// Scores are computed twice, once for their maximum and once segment by segment, so that no history needs memory for
// all of them.
#include "reference_attention.h"
#include "reference_cuda.h"
#include "tessera/sdk/cuda.h"
#include "tessera/sdk/numerics.h"

namespace tessera_reference {
namespace {

namespace sdk = tessera::sdk;

constexpr int kSegment = sdk::kAttentionSegment;
constexpr int kThreads = kSegment;  // a thread for each lane of a segment's sum
constexpr int kWarps = kThreads / 32;
constexpr int kComponents = kMaxHeadDim / kThreads;  // of a value vector that one thread may own

/// The keys and values one (row, head) sees.
struct History {
  const std::int32_t* pages;
  const sdk::KvView& kv;
  std::int32_t layer, kv_head;

  __device__ std::int64_t offset(std::int32_t position) const {
    return kv.offset(pages[position / sdk::kPageSize], layer, position % sdk::kPageSize, kv_head);
  }
  __device__ const float* key(std::int32_t position) const {
    return static_cast<const float*>(kv.k) + offset(position);
  }
  __device__ const float* value(std::int32_t position) const {
    return static_cast<const float*>(kv.v) + offset(position);
  }
};

/// score = s * tree over 32 lanes; lane d chains q[d] k[d], then fma with d + 32, d + 64, ... A warp computes one.
__device__ float score(const float* q, const float* k, std::int32_t head_dim, float scale) {
  const int lane = threadIdx.x % 32;
  float sum = __fmul_rn(q[lane], k[lane]);
  for (std::int32_t d = lane + 32; d < head_dim; d += 32) sum = sdk::fma_f32(q[d], k[d], sum);
  return __fmul_rn(sdk::warp_fold_32(sum), scale);
}

/// Maximum over the block; all threads get it. Order does not matter.
__device__ float block_max(float value) {
  __shared__ float largest[kWarps];
  for (int width = 16; width > 0; width /= 2) {
    const float other = __shfl_xor_sync(sdk::kWholeWarp, value, width);
    value = other > value ? other : value;
  }
  if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32] = value;
  __syncthreads();
  for (int warp = 0; warp < kWarps; ++warp) value = largest[warp] > value ? largest[warp] : value;
  return value;
}

__global__ void __launch_bounds__(kThreads)
    attend_kernel(const sdk::AttentionArgs args, const sdk::AttentionShape shape) {
  __shared__ float q[kMaxHeadDim];
  __shared__ float weights[kSegment];
  const int row = blockIdx.x, head = blockIdx.y, warp = threadIdx.x / 32;
  const std::int32_t length = args.rows.positions[row] + 1;
  const History history{args.rows.pages + args.rows.slices[args.rows.row_slice[row]].first_page, args.kv, args.layer,
                        head / (shape.num_q_heads / shape.num_kv_heads)};
  const std::int64_t column = static_cast<std::int64_t>(head) * shape.head_dim;
  for (int d = threadIdx.x; d < shape.head_dim; d += kThreads) q[d] = args.q.f32(row)[column + d];
  __syncthreads();

  float* emitted = args.scores == nullptr
                       ? nullptr
                       : args.scores + (static_cast<std::int64_t>(row) * shape.num_q_heads + head) * args.scores_stride;
  float largest = -INFINITY;
  for (std::int32_t j = warp; j < length; j += kWarps) {
    const float found = score(q, history.key(j), shape.head_dim, shape.scale);
    largest = found > largest ? found : largest;
    if (emitted != nullptr && threadIdx.x % 32 == 0) emitted[j] = found;
  }
  largest = block_max(largest);

  float total = 0.0f, out[kComponents] = {};
  for (std::int32_t begin = 0; begin < length; begin += kSegment) {
    const std::int32_t count = min(length - begin, kSegment);
    for (std::int32_t i = warp; i < count; i += kWarps) {
      const float found = score(q, history.key(begin + i), shape.head_dim, shape.scale);
      if (threadIdx.x % 32 == 0) weights[i] = sdk::exp_f32(__fsub_rn(found, largest));
    }
    __syncthreads();
    const float sum = sdk::block_fold_256(threadIdx.x < count ? weights[threadIdx.x] : 0.0f);
    total = begin == 0 ? sum : __fadd_rn(total, sum);
#pragma unroll
    for (int c = 0; c < kComponents; ++c) {
      const int d = threadIdx.x + c * kThreads;
      if (d >= shape.head_dim) break;
      float chain = 0.0f;
#pragma unroll 4
      for (std::int32_t i = 0; i < count; ++i) chain = sdk::fma_f32(weights[i], history.value(begin + i)[d], chain);
      out[c] = begin == 0 ? chain : __fadd_rn(out[c], chain);
    }
    __syncthreads();  // the next segment overwrites the weights
  }
  const float inverse = __fdiv_rn(1.0f, total);
#pragma unroll
  for (int c = 0; c < kComponents; ++c) {
    const int d = threadIdx.x + c * kThreads;
    if (d < shape.head_dim) args.out.f32(row)[column + d] = __fmul_rn(out[c], inverse);
  }
}

}  // namespace

cudaError_t attend_cuda(const sdk::AttentionArgs& args, const sdk::AttentionShape& shape, cudaStream_t stream) {
  const dim3 grid(args.rows.num_rows, shape.num_q_heads);
  if (grid.x > 0) attend_kernel<<<grid, kThreads, 0, stream>>>(args, shape);
  return cudaGetLastError();
}

void list_kernels(sdk::KernelList& list) {
  list.add("reference", reinterpret_cast<const void*>(&attend_kernel), kThreads);
}

}  // namespace tessera_reference
