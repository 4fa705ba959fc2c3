#include "place.cuh"
#include "retention.h"
#include "weights.cuh"

namespace tessera_loop {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr int kDigits = 256;

struct Threshold {
  std::uint32_t key;      // of the last selected score
  std::int32_t of_equal;  // how many of the scores with this key are selected: those at the lowest positions
};

__device__ std::int32_t warp_sum(std::int32_t value) { return __reduce_add_sync(sdk::kWholeWarp, value); }

/// Of lanes before this one.
__device__ std::int32_t sum_before(std::int32_t value) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  std::int32_t sum = value;
  for (int width = 1; width < 32; width *= 2) {
    const std::int32_t other = __shfl_up_sync(sdk::kWholeWarp, sum, width);
    if (lane >= width) sum += other;
  }
  return sum - value;
}

/// By one warp: the highest digit that with those above it has `left` entries, and how many it must give itself.
__device__ void find_digit(const std::int32_t* histogram, std::int32_t left, std::int32_t* digit, std::int32_t* rest) {
  constexpr int kEach = kDigits / 32;
  const int top = kDigits - 1 - static_cast<int>(threadIdx.x) * kEach;  // of this lane's digits, descending
  std::int32_t mine = 0;
  for (int i = 0; i < kEach; ++i) mine += histogram[top - i];
  std::int32_t above = sum_before(mine);
  if (above >= left || above + mine < left) return;
  for (int i = 0; i < kEach; ++i) {
    const std::int32_t here = histogram[top - i];
    if (above + here >= left) {
      *digit = top - i;
      *rest = left - above;
      return;
    }
    above += here;
  }
}

/// The key of rank `count`, eight bits at a time.
__device__ Threshold find_threshold(const float* scores, std::int32_t length, std::int32_t count) {
  __shared__ std::int32_t histogram[kDigits];
  __shared__ std::int32_t digit, rest;
  std::uint32_t prefix = 0;
  std::int32_t left = count;
  for (int shift = 24; shift >= 0; shift -= 8) {
    if (threadIdx.x < kDigits) histogram[threadIdx.x] = 0;
    __syncthreads();
    for (std::int32_t j = static_cast<std::int32_t>(threadIdx.x); j < length; j += kThreads) {
      const std::uint32_t key = sdk::rank_key(scores[j]);
      if (shift == 24 || key >> (shift + 8) == prefix >> (shift + 8)) atomicAdd(&histogram[key >> shift & 255u], 1);
    }
    __syncthreads();
    if (threadIdx.x < 32) find_digit(histogram, left, &digit, &rest);
    __syncthreads();
    prefix |= static_cast<std::uint32_t>(digit) << shift;
    left = rest;
    __syncthreads();  // the histogram is written again
  }
  return {prefix, left};
}

/// What one warp found in its range of positions.
struct Found {
  std::int32_t greater, equal;
};

/// Of the warps before this one; a block-wide call.
__device__ Found found_before(Found mine) {
  __shared__ std::int32_t greater[kWarps], equal[kWarps];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (threadIdx.x % 32 == 0) greater[warp] = mine.greater, equal[warp] = mine.equal;
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return {warp_sum(lane < warp ? greater[lane] : 0), warp_sum(lane < warp ? equal[lane] : 0)};
}

/// Writes the selected positions of [begin, end), the range of one warp, to the list.
__device__ void emit(const float* scores, std::int32_t begin, std::int32_t end, const Threshold& threshold,
                     const Found& before, const Place& place, const Call& call) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::uint32_t lower = (1u << lane) - 1u;
  std::int32_t equals = before.equal;
  std::int32_t written = before.greater + min(before.equal, threshold.of_equal);
  for (std::int32_t first = begin; first < end; first += 32) {
    const std::int32_t position = first + lane;
    const std::uint32_t key = position < end ? sdk::rank_key(scores[position]) : 0u;
    const bool equal = position < end && key == threshold.key;
    const unsigned ties = __ballot_sync(sdk::kWholeWarp, equal);
    const bool takes =
        (position < end && key > threshold.key) || (equal && equals + __popc(ties & lower) < threshold.of_equal);
    const unsigned taken = __ballot_sync(sdk::kWholeWarp, takes);
    if (takes) *place.selected(call, written + __popc(taken & lower)) = position;
    equals += __popc(ties);
    written += __popc(taken);
  }
}

/// Sums of the weights of all positions, a warp a segment.
__device__ void sum_all(const float* scores, const Place& place, float largest, const Call& call) {
  const std::int32_t segments = (place.length + kSegment - 1) / kSegment;
  float* sums = call.scratch.whole_sums + place.pair * call.scratch.whole_segments;
  for (std::int32_t segment = static_cast<std::int32_t>(threadIdx.x) / 32; segment < segments; segment += kWarps) {
    std::int32_t positions[kEach];
    float weights[kEach];
    ranks_of(segment * kSegment, place.length, positions);
    weights_of(scores, positions, segment * kSegment, place.length, largest, weights);
    const float sum = warp_fold_256(weights);
    if (threadIdx.x % 32 == 0) sums[segment] = sum;
  }
}

/// Scores are read from shared memory where they fit.
template <bool kShared>
__global__ void __launch_bounds__(kThreads) select_kernel(const Call call) {
  extern __shared__ float staged[];
  __shared__ std::uint32_t largest;
  const Place place(call, static_cast<std::int32_t>(blockIdx.x), static_cast<std::int32_t>(blockIdx.y));
  const float* given = place.captured_scores(call);
  const std::int32_t count = retained_count(place.length, call.retention);
  if (threadIdx.x == 0) largest = 0;
  __syncthreads();
  std::uint32_t most = 0;
  for (std::int32_t j = static_cast<std::int32_t>(threadIdx.x); j < place.length; j += kThreads) {
    const float score = given[j];
    if (kShared) staged[j] = score;
    most = max(most, sdk::rank_key(score));
  }
  atomicMax(&largest, __reduce_max_sync(sdk::kWholeWarp, most));
  __syncthreads();
  const float* scores = kShared ? staged : given;
  const Threshold threshold = find_threshold(scores, place.length, count);

  const std::int32_t share = (place.length + kThreads - 1) / kThreads * 32;
  const std::int32_t begin = min(place.length, static_cast<std::int32_t>(threadIdx.x) / 32 * share);
  const std::int32_t end = min(place.length, begin + share);
  Found mine{};
  for (std::int32_t j = begin + static_cast<std::int32_t>(threadIdx.x) % 32; j < end; j += 32) {
    const std::uint32_t key = sdk::rank_key(scores[j]);
    mine.greater += key > threshold.key ? 1 : 0;
    mine.equal += key == threshold.key ? 1 : 0;
  }
  mine = {warp_sum(mine.greater), warp_sum(mine.equal)};
  const Found before = found_before(mine);
  emit(scores, begin, end, threshold, before, place, call);
  sum_all(scores, place, sdk::number_of(largest), call);
  if (threadIdx.x != 0) return;
  call.store.counts[place.index] = count;
  call.scratch.largest[place.pair] = largest;
}

}  // namespace

cudaError_t prepare_select(std::int64_t shared_bytes) {
  return cudaFuncSetAttribute(select_kernel<true>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(shared_bytes));
}

cudaError_t launch_select(const Call& call, std::int64_t shared_bytes, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(call.args.rows.num_rows), static_cast<unsigned>(call.shape.num_q_heads));
  const std::int64_t bytes = std::int64_t{call.longest} * static_cast<std::int64_t>(sizeof(float));
  if (bytes <= shared_bytes)
    select_kernel<true><<<grid, kThreads, static_cast<std::size_t>(bytes), stream>>>(call);
  else
    select_kernel<false><<<grid, kThreads, 0, stream>>>(call);
  return cudaGetLastError();
}

}  // namespace tessera_loop
