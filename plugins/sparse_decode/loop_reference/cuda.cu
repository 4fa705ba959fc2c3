#include "cuda.h"
#include "retention.h"
#include "tessera/sdk/cuda.h"
#include "tessera/sdk/numerics.h"

namespace tessera_loop {
namespace {

namespace sdk = tessera::sdk;

constexpr int kSegment = sdk::kAttentionSegment;
constexpr int kThreads = kSegment;  // a thread for each lane of a segment's sum
constexpr int kWarps = kThreads / 32;
constexpr int kMostDim = 1024;
constexpr int kComponents = kMostDim / kThreads;  // of a vector that one thread may own

/// What a block works on.
struct Place {
  std::int32_t length;  // positions that the row sees
  const std::int32_t* pages;
  std::int32_t kv_head;
  std::int64_t index;   // of (slot, layer, head) in the store
  std::int64_t column;  // of the head in q and out

  __device__ explicit Place(const Call& call) {
    const int row = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
    const sdk::PackedRows& rows = call.args.rows;
    length = rows.positions[row] + 1;
    pages = rows.pages + rows.slices[rows.row_slice[row]].first_page;
    kv_head = head / (call.shape.num_q_heads / call.shape.num_kv_heads);
    index = (static_cast<std::int64_t>(rows.references[row]) * call.shape.num_layers + call.args.layer) *
                call.shape.num_q_heads +
            head;
    column = static_cast<std::int64_t>(head) * call.shape.head_dim;
  }
  __device__ std::int64_t at(const Call& call, std::int32_t position) const {
    return call.args.kv.offset(pages[position / sdk::kPageSize], call.args.layer, position % sdk::kPageSize, kv_head);
  }
};

/// Ascending with the score; -0 is +0.
__device__ std::uint32_t rank_key(float score) {
  const std::uint32_t bits = __float_as_uint(__fadd_rn(score, 0.0f));
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/// All threads get it.
__device__ float block_max(float value) {
  __shared__ float largest[kWarps];
  for (int width = 16; width > 0; width /= 2) {
    const float other = __shfl_xor_sync(sdk::kWholeWarp, value, width);
    value = other > value ? other : value;
  }
  __syncthreads();  // the last call may still be read
  if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32] = value;
  __syncthreads();
  for (int warp = 0; warp < kWarps; ++warp) value = largest[warp] > value ? largest[warp] : value;
  return value;
}

/// Threads before this one whose `flag` is set, and all of them.
__device__ int count_before(bool flag, int* all) {
  __shared__ int counts[kWarps];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const unsigned votes = __ballot_sync(sdk::kWholeWarp, flag);
  __syncthreads();  // the last call may still be read
  if (lane == 0) counts[warp] = __popc(votes);
  __syncthreads();
  int before = __popc(votes & ((1u << lane) - 1)), total = 0;
  for (int i = 0; i < kWarps; ++i) {
    if (i < warp) before += counts[i];
    total += counts[i];
  }
  *all = total;
  return before;
}

struct Threshold {
  std::uint32_t key;      // of the last selected score
  std::int32_t of_equal;  // how many of the scores with this key are selected: those at the lowest positions
};

/// The key of rank `count`, found eight bits at a time.
__device__ Threshold find_threshold(const float* scores, std::int32_t length, std::int32_t count) {
  __shared__ int histogram[256];
  __shared__ std::uint32_t chosen;
  __shared__ std::int32_t remaining;
  std::uint32_t prefix = 0;
  std::int32_t left = count;
  for (int shift = 24; shift >= 0; shift -= 8) {
    histogram[threadIdx.x] = 0;
    __syncthreads();
    for (std::int32_t j = static_cast<std::int32_t>(threadIdx.x); j < length; j += kThreads) {
      const std::uint32_t key = rank_key(scores[j]);
      if (shift == 24 || key >> (shift + 8) == prefix >> (shift + 8)) atomicAdd(&histogram[key >> shift & 255u], 1);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int digit = 255;
      for (; histogram[digit] < left; --digit) left -= histogram[digit];
      chosen = prefix | static_cast<std::uint32_t>(digit) << shift;
      remaining = left;
    }
    __syncthreads();
    prefix = chosen;
    left = remaining;
  }
  return {prefix, left};
}

/// Ascending positions of the `count` best scores; lower positions win ties.
__device__ void select(const float* scores, std::int32_t length, std::int32_t count, std::int32_t* selected) {
  const Threshold threshold = find_threshold(scores, length, count);
  std::int32_t written = 0, equals = 0;
  for (std::int32_t begin = 0; begin < length; begin += kThreads) {
    const std::int32_t position = begin + static_cast<std::int32_t>(threadIdx.x);
    const std::uint32_t key = position < length ? rank_key(scores[position]) : 0;
    int all = 0;
    const bool equal = position < length && key == threshold.key;
    const int before = equals + count_before(equal, &all);  // a barrier: every thread counts, whatever it holds
    const bool among = equal && before < threshold.of_equal;
    equals += all;
    const bool takes = among || (position < length && key > threshold.key);
    const int place = count_before(takes, &all);
    if (takes) selected[written + place] = position;
    written += all;
  }
  __syncthreads();
}

/// One sum of weights and, into `values` (by component), one weighted sum of vectors: the order of attention over
/// ranks.
template <class Score, class Value>
__device__ float weigh(std::int32_t count, float largest, std::int32_t dim, float (&values)[kComponents], Score&& score,
                       Value&& value) {
  __shared__ float weights[kSegment];
  float total = 0.0f;
  for (std::int32_t begin = 0; begin < count; begin += kSegment) {
    const std::int32_t end = min(count - begin, kSegment), lane = static_cast<std::int32_t>(threadIdx.x);
    __syncthreads();  // the last weights may still be read
    const float weight = lane < end ? sdk::exp_f32(__fsub_rn(score(begin + lane), largest)) : 0.0f;
    weights[lane] = weight;
    const float sum = sdk::block_fold_256(weight);  // a barrier too
    total = begin == 0 ? sum : __fadd_rn(total, sum);
#pragma unroll
    for (int c = 0; c < kComponents; ++c) {
      const int d = static_cast<int>(threadIdx.x) + c * kThreads;
      if (d >= dim) break;
      float chain = 0.0f;
      for (std::int32_t i = 0; i < end; ++i) chain = sdk::fma_f32(weights[i], value(begin + i)[d], chain);
      values[c] = begin == 0 ? chain : __fadd_rn(values[c], chain);
    }
  }
  return total;
}

__global__ void __launch_bounds__(kThreads) capture_kernel(const Call call) {
  const Place place(call);
  const sdk::SparseArgs& args = call.args;
  const int row = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y), dim = call.shape.head_dim;
  const float* scores =
      args.scores + (static_cast<std::int64_t>(row) * call.shape.num_q_heads + head) * args.scores_stride;
  const std::int32_t count = retained_count(place.length, call.retention);
  std::int32_t* selected = call.store.selected + place.index * call.store.capacity;
  float largest = -INFINITY;
  for (std::int32_t j = static_cast<std::int32_t>(threadIdx.x); j < place.length; j += kThreads)
    largest = scores[j] > largest ? scores[j] : largest;
  largest = block_max(largest);
  select(scores, place.length, count, selected);

  float values[kComponents] = {};
  const float all = weigh(
      place.length, largest, 0, values, [&](std::int32_t j) { return scores[j]; },
      [&](std::int32_t) { return static_cast<const float*>(nullptr); });
  const float kept = weigh(
      count, largest, dim, values, [&](std::int32_t i) { return scores[selected[i]]; },
      [&](std::int32_t i) { return static_cast<const float*>(args.kv.v) + place.at(call, selected[i]); });
  const float inverse = __fdiv_rn(1.0f, all);
#pragma unroll
  for (int c = 0; c < kComponents; ++c) {
    const int d = static_cast<int>(threadIdx.x) + c * kThreads;
    if (d >= dim) break;
    call.store.outputs[place.index * dim + d] = args.out.f32(row)[place.column + d];
    call.store.contributions[place.index * dim + d] = __fmul_rn(values[c], inverse);
  }
  if (threadIdx.x != 0) return;
  call.store.counts[place.index] = count;
  call.store.masses[place.index] = __fmul_rn(kept, inverse);
  if (args.masses != nullptr)
    args.masses[static_cast<std::int64_t>(row) * call.shape.num_q_heads + head] = __fmul_rn(kept, inverse);
}

__global__ void __launch_bounds__(kThreads) consume_kernel(const Call call) {
  __shared__ float q[kMostDim];
  const Place place(call);
  const sdk::SparseArgs& args = call.args;
  const int row = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y), dim = call.shape.head_dim;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const std::int32_t count = call.store.counts[place.index];
  const std::int32_t* selected = call.store.selected + place.index * call.store.capacity;
  float* scores = static_cast<float*>(args.workspace) +
                  (static_cast<std::int64_t>(row) * call.shape.num_q_heads + head) * call.store.capacity;
  for (int d = static_cast<int>(threadIdx.x); d < dim; d += kThreads) q[d] = args.q.f32(row)[place.column + d];
  __syncthreads();
  float largest = -INFINITY;
  for (std::int32_t i = warp; i < count; i += kWarps) {
    const float* k = static_cast<const float*>(args.kv.k) + place.at(call, selected[i]);
    float sum = __fmul_rn(q[lane], k[lane]);
    for (int d = lane + 32; d < dim; d += 32) sum = sdk::fma_f32(q[d], k[d], sum);
    const float score = __fmul_rn(sdk::warp_fold_32(sum), call.shape.scale);
    if (lane == 0) scores[i] = score;
    largest = score > largest ? score : largest;
  }
  largest = block_max(largest);
  float values[kComponents] = {};
  const float sum = weigh(
      count, largest, dim, values, [&](std::int32_t i) { return scores[i]; },
      [&](std::int32_t i) { return static_cast<const float*>(args.kv.v) + place.at(call, selected[i]); });
  const float inverse = __fdiv_rn(1.0f, sum), mass = call.store.masses[place.index];
#pragma unroll
  for (int c = 0; c < kComponents; ++c) {
    const int d = static_cast<int>(threadIdx.x) + c * kThreads;
    if (d >= dim) break;
    const float rest =
        __fsub_rn(call.store.outputs[place.index * dim + d], call.store.contributions[place.index * dim + d]);
    args.out.f32(row)[place.column + d] = sdk::fma_f32(mass, __fmul_rn(values[c], inverse), rest);
  }
}

dim3 grid_of(const Call& call) {
  return dim3(static_cast<unsigned>(call.args.rows.num_rows), static_cast<unsigned>(call.shape.num_q_heads));
}

}  // namespace

cudaError_t capture_cuda(const Call& call, cudaStream_t stream) {
  if (call.args.rows.num_rows > 0) capture_kernel<<<grid_of(call), kThreads, 0, stream>>>(call);
  return cudaGetLastError();
}

cudaError_t consume_cuda(const Call& call, cudaStream_t stream) {
  if (call.args.rows.num_rows > 0) consume_kernel<<<grid_of(call), kThreads, 0, stream>>>(call);
  return cudaGetLastError();
}

}  // namespace tessera_loop
