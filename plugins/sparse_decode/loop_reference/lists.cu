#include "place.cuh"
#include "retention.h"
#include "weights.cuh"

namespace tessera_loop {
namespace {

constexpr int kWarps = 8;  // of a block: neighbouring segments of one (row, head)
constexpr int kThreads = kWarps * 32;
constexpr int kAhead = 16;           // of a lane on their way
constexpr int kKeys = 8;             // of a warp at a time
constexpr std::int32_t kBatch = 32;  // ranks of a warp that scores; kKeys of few

std::int32_t ceil_div(std::int64_t a, std::int64_t b) { return static_cast<std::int32_t>((a + b - 1) / b); }

/// Products of kKeys keys with the query, whose components of this lane are lane, lane + 32, ... With kParts of them
/// known, all keys are on their way before the first is needed.
template <int kParts>
__device__ void multiply(const float* q, const float* const (&k)[kKeys], std::int32_t dim, float (&sums)[kKeys]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if constexpr (kParts > 0) {
    float keys[kKeys][kParts];
#pragma unroll
    for (int i = 0; i < kKeys; ++i)
#pragma unroll
      for (int part = 0; part < kParts; ++part) keys[i][part] = __ldg(k[i] + lane + 32 * part);
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      sums[i] = __fmul_rn(q[lane], keys[i][0]);
#pragma unroll
      for (int part = 1; part < kParts; ++part) sums[i] = sdk::fma_f32(q[lane + 32 * part], keys[i][part], sums[i]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kKeys; ++i) sums[i] = __fmul_rn(q[lane], k[i][lane]);
    for (std::int32_t d = lane + 32; d < dim; d += 32)
#pragma unroll
      for (int i = 0; i < kKeys; ++i) sums[i] = sdk::fma_f32(q[d], k[i][d], sums[i]);
  }
}

/// Consume: scores of the selected positions, kRanks a warp.
template <int kParts, int kRanks>
__global__ void __launch_bounds__(kThreads) score_kernel(const Call call) {
  const Place place(call, static_cast<std::int32_t>(blockIdx.z), static_cast<std::int32_t>(blockIdx.y));
  const std::int32_t count = call.store.counts[place.index], lane = static_cast<std::int32_t>(threadIdx.x) % 32;
  const std::int32_t begin = static_cast<std::int32_t>(blockIdx.x * kWarps + threadIdx.x / 32) * kRanks;
  const std::int32_t end = min(begin + kRanks, count);
  if (begin >= count) return;
  const float* q = call.args.q.f32(place.row) + place.column;
  const float* keys = static_cast<const float*>(call.args.kv.k);
  float* scores = call.scratch.scores + place.pair * call.store.capacity;
  // A lane looks up one of the warp's ranks.
  const std::int64_t own = place.at(call, *place.selected(call, min(begin + lane, end - 1)));
  std::uint32_t largest = 0;
#pragma unroll
  for (std::int32_t first = 0; first < kRanks; first += kKeys) {
    if (begin + first >= end) break;
    const float* k[kKeys];
    float sums[kKeys];
#pragma unroll
    for (int i = 0; i < kKeys; ++i) k[i] = keys + __shfl_sync(sdk::kWholeWarp, own, first + i);
    multiply<kParts>(q, k, call.shape.head_dim, sums);
    const float score = __fmul_rn(sdk::warp_fold_8x32(sums), call.shape.scale);
    const std::int32_t rank = begin + first + sdk::folded_sum();
    if (rank >= end) continue;
    if (lane % 4 == 0) scores[rank] = score;
    largest = max(largest, sdk::rank_key(score));
  }
  largest = __reduce_max_sync(sdk::kWholeWarp, largest);
  if (lane == 0) atomicMax(&call.scratch.largest[place.pair], largest);
}

/// kWidth neighbouring components of a value.
template <int kWidth>
struct Values;
template <>
struct Values<1> {
  using Vector = float;
  __device__ static float get(const float& v, int) { return v; }
};
template <>
struct Values<2> {
  using Vector = float2;
  __device__ static float get(const float2& v, int i) { return i == 0 ? v.x : v.y; }
};
template <>
struct Values<4> {
  using Vector = float4;
  __device__ static float get(const float4& v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }
};

/// 32 * kWidth components of one segment of a list by one warp: the sum of its weights, and the chains of its weighted
/// values, of which kFetched ranks are on their way before the chains need the first.
template <bool kCapture, int kWidth, int kFetched>
__global__ void __launch_bounds__(kThreads) segment_kernel(const Call call) {
  using Vector = typename Values<kWidth>::Vector;
  const Place place(call, static_cast<std::int32_t>(blockIdx.z), static_cast<std::int32_t>(blockIdx.y));
  const std::int32_t dim = call.shape.head_dim, count = call.store.counts[place.index];
  const std::int32_t unit = static_cast<std::int32_t>(blockIdx.x * kWarps + threadIdx.x / 32);
  const std::int32_t parts = dim / (32 * kWidth), segment = unit / parts;
  const std::int32_t lane = static_cast<std::int32_t>(threadIdx.x) % 32;
  const std::int32_t first = segment * kSegment, component = (unit % parts * 32 + lane) * kWidth;
  if (first >= count) return;
  const float largest = sdk::number_of(call.scratch.largest[place.pair]);
  std::int32_t ranks[kEach], positions[kEach];
  ranks_of(first, count, ranks);
#pragma unroll
  for (int i = 0; i < kEach; ++i) positions[i] = *place.selected(call, ranks[i]);
  float weights[kEach];
  if (kCapture)
    weights_of(place.captured_scores(call), positions, first, count, largest, weights);
  else
    weights_of(call.scratch.scores + place.pair * call.store.capacity, ranks, first, count, largest, weights);
  std::int64_t offsets[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) offsets[i] = place.at(call, positions[i]);
  const std::int64_t out = place.pair * call.scratch.segments + segment;
  if (unit % parts == 0) {
    const float sum = warp_fold_256(weights);
    if (lane == 0) call.scratch.sums[out] = sum;
  }
  const float* values = static_cast<const float*>(call.args.kv.v) + component;
  const std::int32_t size = min(kSegment, count - first);
  float chains[kWidth] = {};
#pragma unroll
  for (int batch = 0; batch < kSegment; batch += kFetched) {
    if (batch >= size) break;
    Vector ahead[kFetched];
#pragma unroll
    for (int j = 0; j < kFetched; ++j) {
      const int rank = batch + j;
      ahead[j] =
          __ldg(reinterpret_cast<const Vector*>(values + __shfl_sync(sdk::kWholeWarp, offsets[rank / 32], rank % 32)));
    }
#pragma unroll
    for (int j = 0; j < kFetched; ++j) {
      const int rank = batch + j;
      const float weight = __shfl_sync(sdk::kWholeWarp, weights[rank / 32], rank % 32);
      if (rank < size)
#pragma unroll
        for (int c = 0; c < kWidth; ++c) chains[c] = sdk::fma_f32(weight, Values<kWidth>::get(ahead[j], c), chains[c]);
    }
  }
#pragma unroll
  for (int c = 0; c < kWidth; ++c) call.scratch.vectors[out * dim + component + c] = chains[c];
}

/// parts[0] + parts[stride] + ..., in this order, several on their way at a time.
__device__ float add_all(const float* parts, std::int32_t count, std::int64_t stride) {
  float total = parts[0];
  for (std::int32_t first = 1; first < count; first += kAhead) {
    float ahead[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) ahead[i] = parts[min(first + i, count - 1) * stride];
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (first + i < count) total = __fadd_rn(total, ahead[i]);
  }
  return total;
}

/// Segments in ascending order, then what the row is owed. A thread a component.
template <bool kCapture>
__global__ void merge_kernel(const Call call) {
  const Place place(call, static_cast<std::int32_t>(blockIdx.x), static_cast<std::int32_t>(blockIdx.y));
  const sdk::SparseArgs& args = call.args;
  const std::int32_t dim = call.shape.head_dim, count = call.store.counts[place.index];
  const std::int32_t segments = (count + kSegment - 1) / kSegment;
  const std::int64_t first = place.pair * call.scratch.segments;
  const float kept = add_all(call.scratch.sums + first, segments, 1);
  float whole = kept;
  if (kCapture)
    whole = add_all(call.scratch.whole_sums + place.pair * call.scratch.whole_segments,
                    (place.length + kSegment - 1) / kSegment, 1);
  const float inverse = __fdiv_rn(1.0f, whole),
              mass = kCapture ? __fmul_rn(kept, inverse) : call.store.masses[place.index];
  for (std::int32_t d = static_cast<std::int32_t>(threadIdx.x); d < dim; d += static_cast<std::int32_t>(blockDim.x)) {
    const float part = __fmul_rn(add_all(call.scratch.vectors + first * dim + d, segments, dim), inverse);
    const std::int64_t at = place.index * dim + d;
    float& out = args.out.f32(place.row)[place.column + d];
    if (kCapture)
      call.store.outputs[at] = out, call.store.contributions[at] = part;
    else
      out = sdk::fma_f32(mass, part, __fsub_rn(call.store.outputs[at], call.store.contributions[at]));
  }
  if (!kCapture || threadIdx.x != 0) return;
  call.store.masses[place.index] = mass;
  if (args.masses != nullptr) args.masses[place.pair] = mass;
}

/// Blocks of kWarps warps over `units` of every (row, head).
dim3 grid_of(const Call& call, std::int32_t units) {
  return dim3(static_cast<unsigned>(ceil_div(units, kWarps)), static_cast<unsigned>(call.shape.num_q_heads),
              static_cast<unsigned>(call.args.rows.num_rows));
}

template <bool kCapture, int kWidth, int kFetched = kAhead>
void launch_segments(const Call& call, std::int32_t most, cudaStream_t stream) {
  const std::int32_t units = ceil_div(most, kSegment) * (call.shape.head_dim / (32 * kWidth));
  segment_kernel<kCapture, kWidth, kFetched><<<grid_of(call, units), kThreads, 0, stream>>>(call);
}

/// Whether `each` of every (row, head) are few, of work that is `smaller` times as short as a segment's.
bool are_few(const Call& call, std::int32_t each, std::int32_t smaller = 1) {
  return std::int64_t{call.args.rows.num_rows} * call.shape.num_q_heads * each < smaller * call.few_units;
}

template <bool kCapture>
cudaError_t launch_lists(const Call& call, std::int32_t most, cudaStream_t stream) {
  const std::int32_t dim = call.shape.head_dim;
  if (are_few(call, ceil_div(most, kSegment) * ceil_div(dim, 128)))
    launch_segments<kCapture, 1, 4 * kAhead>(call, most, stream);
  else if (dim % 128 == 0)
    launch_segments<kCapture, 4>(call, most, stream);
  else if (dim % 64 == 0)
    launch_segments<kCapture, 2>(call, most, stream);
  else
    launch_segments<kCapture, 1>(call, most, stream);
  const dim3 pairs(static_cast<unsigned>(call.args.rows.num_rows), static_cast<unsigned>(call.shape.num_q_heads));
  merge_kernel<kCapture><<<pairs, 128, 0, stream>>>(call);
  return cudaGetLastError();
}

template <int kRanks>
void launch_scores(const Call& call, std::int32_t most, cudaStream_t stream) {
  const dim3 grid = grid_of(call, ceil_div(most, kRanks));
  switch (call.shape.head_dim) {
    case 64: score_kernel<2, kRanks><<<grid, kThreads, 0, stream>>>(call); break;
    case 128: score_kernel<4, kRanks><<<grid, kThreads, 0, stream>>>(call); break;
    default: score_kernel<0, kRanks><<<grid, kThreads, 0, stream>>>(call);
  }
}

}  // namespace

cudaError_t launch_capture(const Call& call, cudaStream_t stream) {
  return launch_lists<true>(call, retained_count(call.longest, call.retention), stream);
}

cudaError_t launch_consume(const Call& call, cudaStream_t stream) {
  const std::int32_t most = retained_count(call.longest, call.retention);
  const std::size_t pairs =
      static_cast<std::size_t>(call.args.rows.num_rows) * static_cast<std::size_t>(call.shape.num_q_heads);
  const cudaError_t error = cudaMemsetAsync(call.scratch.largest, 0, pairs * sizeof(std::uint32_t), stream);
  if (error != cudaSuccess) return error;
  if (are_few(call, ceil_div(most, kBatch), kSegment / kBatch))
    launch_scores<kKeys>(call, most, stream);
  else
    launch_scores<kBatch>(call, most, stream);
  return launch_lists<false>(call, most, stream);
}

}  // namespace tessera_loop
