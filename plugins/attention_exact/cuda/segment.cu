#include <algorithm>

#include "segment.cuh"
#include "tessera/sdk/cuda.h"

namespace tessera_exact {
namespace {

template <int kDim, int kPairs>
inline constexpr int kBlocksPerSm = kPairs == kNarrowPairs&& kDim <= 64 ? 2 : 1;

/// Scores of every unit; outputs of the units that are their tile's only segment.
template <int kDim, int kPairs>
__global__ __launch_bounds__(kThreads, (kBlocksPerSm<kDim, kPairs>)) void score_kernel(const SegmentArgs args,
                                                                                       const Unit* units,
                                                                                       const Unit* multiples,
                                                                                       std::int32_t singles) {
  extern __shared__ float4 memory[];
  auto& tile = *reinterpret_cast<Tile<kDim, kPairs>*>(memory);
  const std::int32_t block = static_cast<std::int32_t>(blockIdx.x);
  const std::int32_t index = block - singles;
  const Work work = work_of(args, block < singles ? units[block] : multiples[index]);
  load_pages(args, work, tile);
  load_queries(args, work, tile);
  stage(args, work, args.k, tile);
  score(args, work, tile);
  __syncthreads();
  find_largest(work, tile);
  if (work.unit.segments == 1) {
    weigh(work, tile);
    __pipeline_wait_prior(0);
    __syncthreads();
    sum_values(work, tile, Sink<kPairs>{args, work, nullptr});
    return;
  }
  if (threadIdx.x < work.pairs) args.unit_largest[index * kPairs + threadIdx.x] = tile.final[threadIdx.x];
  float* region = args.regions + static_cast<std::int64_t>(index) * kPairs * kSegment;
  for (int i = threadIdx.x; i < work.pairs * (kSegment / 4); i += kThreads) {
    const int pair = i / (kSegment / 4), key = i % (kSegment / 4) * 4;
    if (key < work.keys)
      *reinterpret_cast<float4*>(&region[pair * kSegment + key]) =
          *reinterpret_cast<const float4*>(&tile.scores[pair * kScoreStride + key]);
  }
}

/// Values of the units of tiles with several segments; the last one of a tile adds them up.
template <int kDim, int kPairs>
__global__ __launch_bounds__(kThreads, (kBlocksPerSm<kDim, kPairs>)) void value_kernel(const SegmentArgs args,
                                                                                       const Unit* multiples) {
  extern __shared__ float4 memory[];
  auto& tile = *reinterpret_cast<Tile<kDim, kPairs>*>(memory);
  const std::int32_t index = static_cast<std::int32_t>(blockIdx.x);
  const Work work = work_of(args, multiples[index]);
  float* region = args.regions + static_cast<std::int64_t>(index) * kPairs * kSegment;
  for (int i = threadIdx.x; i < work.pairs * (kSegment / 4); i += kThreads) {
    const int pair = i / (kSegment / 4), key = i % (kSegment / 4) * 4;
    if (key < work.keys)
      __pipeline_memcpy_async(&tile.scores[pair * kScoreStride + key], &region[pair * kSegment + key], 16);
  }
  __pipeline_commit();
  load_pages(args, work, tile);
  stage(args, work, args.v, tile);
  if (threadIdx.x < work.pairs) {
    const float* largest = args.unit_largest + (index - work.unit.segment) * kPairs + threadIdx.x;
    float all = -INFINITY;
    for (int segment = 0; segment < work.unit.segments; ++segment) all = fmaxf(all, largest[segment * kPairs]);
    tile.final[threadIdx.x] = all;
  }
  __pipeline_wait_prior(1);  // the scores
  __syncthreads();
  weigh(work, tile);
  __pipeline_wait_prior(0);
  __syncthreads();
  if (threadIdx.x < work.pairs) args.unit_sums[index * kPairs + threadIdx.x] = tile.final[threadIdx.x];
  sum_values(work, tile, Sink<kPairs>{args, work, region});
  merge(args, work, index, tile);
}

template <int kDim, int kPairs>
sdk::Status launch(const SegmentArgs& args, const Unit* units, std::int32_t all_singles, const UnitRange& range,
                   cudaStream_t stream) {
  constexpr std::size_t kBytes = sizeof(Tile<kDim, kPairs>);
  const Unit* multiples = units + all_singles + range.first_multiple;
  const auto blocks = static_cast<unsigned>(range.singles + range.multiples);
  score_kernel<kDim, kPairs><<<blocks, kThreads, kBytes, stream>>>(args, units, multiples, range.singles);
  if (range.multiples > 0)
    value_kernel<kDim, kPairs><<<static_cast<unsigned>(range.multiples), kThreads, kBytes, stream>>>(args, multiples);
  return sdk::cuda_status(cudaGetLastError(), "attention_exact: launching a segment kernel");
}

template <int kDim, int kPairs>
sdk::Status allow_shared_memory() {
  constexpr int kBytes = sizeof(Tile<kDim, kPairs>);
  for (const void* kernel : {reinterpret_cast<const void*>(&score_kernel<kDim, kPairs>),
                             reinterpret_cast<const void*>(&value_kernel<kDim, kPairs>)}) {
    const auto status = sdk::cuda_status(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes), "cudaFuncSetAttribute");
    if (!status.ok()) return status;
  }
  return {};
}

constexpr int wide_pairs_of(int head_dim) { return head_dim <= 64 ? 64 : 32; }

/// Calls body<head_dim>() for a served head_dim.
template <class Body>
sdk::Status with_dim(std::int32_t head_dim, Body&& body) {
  switch (head_dim) {
    case 32: return body.template operator()<32>();
    case 64: return body.template operator()<64>();
    case 96: return body.template operator()<96>();
    case 128: return body.template operator()<128>();
    default: return sdk::fail(sdk::Code::internal, "attention_exact: no segment kernel for this head_dim");
  }
}

}  // namespace

std::int32_t wide_pairs(std::int32_t head_dim) { return wide_pairs_of(head_dim); }

bool segments_serve(std::int32_t head_dim, std::int32_t group) {
  return head_dim % 32 == 0 && head_dim >= 32 && head_dim <= 128 && group <= kNarrowPairs;
}

std::int64_t segment_shared_bytes(std::int32_t head_dim) {
  std::int64_t bytes = 0;
  const auto status = with_dim(head_dim, [&]<int kDim>() -> sdk::Status {
    bytes = std::max(sizeof(Tile<kDim, wide_pairs_of(kDim)>), sizeof(Tile<kDim, kNarrowPairs>));
    return {};
  });
  return status.ok() ? bytes : INT64_MAX;
}

sdk::Status prepare_segments(std::int32_t head_dim) {
  return with_dim(head_dim, []<int kDim>() -> sdk::Status {
    const auto wide = allow_shared_memory<kDim, wide_pairs_of(kDim)>();
    return wide.ok() ? allow_shared_memory<kDim, kNarrowPairs>() : wide;
  });
}

sdk::Status launch_segments(const SegmentArgs& args, const Unit* units, std::int32_t all_singles,
                            const UnitRange& range, bool narrow, void* stream) {
  return with_dim(args.head_dim, [&]<int kDim>() -> sdk::Status {
    const auto on = static_cast<cudaStream_t>(stream);
    if (narrow) return launch<kDim, kNarrowPairs>(args, units, all_singles, range, on);
    return launch<kDim, wide_pairs_of(kDim)>(args, units, all_singles, range, on);
  });
}

}  // namespace tessera_exact
