#include <algorithm>

#include "segment.cuh"
#include "tessera/sdk/cuda.h"

namespace tessera_exact {
namespace {

/// `units` is null when the step has few units, and each block finds its own, or none (slice -1).
__device__ Unit unit_of(const SegmentArgs& args, const Unit* units, std::int32_t index) {
  return units == nullptr ? find_unit(args, index) : units[index];
}

/// Scores of every unit; outputs of the units that are their tile's only segment. The first `singles` units have no
/// region, the others are `multiples`.
template <class S>
__global__ __launch_bounds__(S::kThreads, S::kBlocks) void score_kernel(const SegmentArgs args, const Unit* units,
                                                                        const Unit* multiples, std::int32_t singles) {
  extern __shared__ float4 memory[];
  auto& tile = *reinterpret_cast<Tile<S>*>(memory);
  allow_next_kernel();
  const std::int32_t block = static_cast<std::int32_t>(blockIdx.x), index = block - singles;
  const Unit unit = block < singles ? unit_of(args, units, block) : unit_of(args, multiples, index);
  if (unit.slice < 0) return;
  const Work work = work_of(args, unit);
  load_facts(args, work, tile);
  load_queries(args, work, tile);
  stage(args, work, args.k, 0, tile);
  if (work.value_row > 0) stage(args, work, args.v, work.value_row, tile);
  score(args, work, tile);
  __syncthreads();
  if (args.emitted != nullptr) emit(args, work, tile);
  find_largest(work, tile);
  if (work.unit.segments == 1) {
    weigh(work, tile);
    __pipeline_wait_prior(0);
    __syncthreads();
    sum_values(args, work, tile, nullptr);
    return;
  }
  if (threadIdx.x < work.pairs) args.unit_largest[index * S::kPairs + threadIdx.x] = tile.final[threadIdx.x];
  float* region = args.regions + static_cast<std::int64_t>(index) * S::kPairs * kSegment;
  for (int i = threadIdx.x; i < work.pairs * (kSegment / 4); i += S::kThreads) {
    const int pair = i / (kSegment / 4), key = i % (kSegment / 4) * 4;
    if (key < work.keys)
      *reinterpret_cast<float4*>(&region[pair * kSegment + key]) =
          *reinterpret_cast<const float4*>(&tile.scores[pair * kScoreStride + key]);
  }
}

/// Values of the units of tiles with several segments; the last one of a tile adds them up.
template <class S>
__global__ __launch_bounds__(S::kThreads, S::kBlocks) void value_kernel(const SegmentArgs args, const Unit* multiples) {
  extern __shared__ float4 memory[];
  auto& tile = *reinterpret_cast<Tile<S>*>(memory);
  const std::int32_t index = static_cast<std::int32_t>(blockIdx.x);
  const Unit unit = unit_of(args, multiples, index);
  if (unit.slice < 0 || unit.segments == 1) {  // only where no list keeps them apart
    wait_for_last_kernel();                    // the grid must not end before the scores' grid, even if all come here
    return;
  }
  const Work work = work_of(args, unit);
  float* region = args.regions + static_cast<std::int64_t>(index) * S::kPairs * kSegment;
  load_facts(args, work, tile);
  stage(args, work, args.v, 0, tile);
  wait_for_last_kernel();
  for (int i = threadIdx.x; i < work.pairs * (kSegment / 4); i += S::kThreads) {
    const int pair = i / (kSegment / 4), key = i % (kSegment / 4) * 4;
    if (key < work.keys)
      __pipeline_memcpy_async(&tile.scores[pair * kScoreStride + key], &region[pair * kSegment + key], 16);
  }
  __pipeline_commit();
  if (threadIdx.x < work.pairs) {
    const float* largest = args.unit_largest + (index - work.unit.segment) * S::kPairs + threadIdx.x;
    float all = -INFINITY;
#pragma unroll 8
    for (int segment = 0; segment < work.unit.segments; ++segment) all = fmaxf(all, largest[segment * S::kPairs]);
    tile.final[threadIdx.x] = all;
  }
  __pipeline_wait_prior(0);
  __syncthreads();
  weigh(work, tile);
  if (threadIdx.x < work.pairs) args.unit_sums[index * S::kPairs + threadIdx.x] = tile.final[threadIdx.x];
  sum_values(args, work, tile, region);
  merge<S>(args, work, index, tile.last);
}

template <class S>
sdk::Status launch(const SegmentArgs& args, const UnitRange& range, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(range.singles + range.multiples);
  score_kernel<S>
      <<<blocks, S::kThreads, sizeof(Tile<S>), stream>>>(args, range.single_units, range.multiple_units, range.singles);
  if (range.values) {
    cudaLaunchAttribute early{};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = static_cast<unsigned>(range.multiples);
    config.blockDim = S::kThreads;
    config.dynamicSmemBytes = sizeof(Tile<S>);
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = range.overlap ? 1 : 0;
    const auto status = sdk::cuda_status(cudaLaunchKernelEx(&config, &value_kernel<S>, args, range.multiple_units),
                                         "attention_exact: launching a value kernel");
    if (!status.ok()) return status;
  }
  return sdk::cuda_status(cudaGetLastError(), "attention_exact: launching a segment kernel");
}

template <class S>
void list(bool values, sdk::KernelList& list) {
  list.add("segment score", reinterpret_cast<const void*>(&score_kernel<S>), S::kThreads, sizeof(Tile<S>));
  if (values) list.add("segment value", reinterpret_cast<const void*>(&value_kernel<S>), S::kThreads, sizeof(Tile<S>));
}

template <class S>
sdk::Status allow_shared_memory() {
  for (const void* kernel :
       {reinterpret_cast<const void*>(&score_kernel<S>), reinterpret_cast<const void*>(&value_kernel<S>)}) {
    const auto status = sdk::cuda_status(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(sizeof(Tile<S>))),
        "cudaFuncSetAttribute");
    if (!status.ok()) return status;
  }
  return {};
}

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

/// Two keys a lane read each query half as often; one key a lane has twice the threads, which hides the waits of a
/// tile of several segments better (docs/benchmarks.md). More than 64 components of two keys do not fit registers.
constexpr int lane_keys(int head_dim, bool several_segments) {
  return head_dim <= 32 || (head_dim <= 64 && !several_segments) ? 2 : 1;
}

template <int kDim, bool kSeveralSegments, int kPairs>
using ShapeOf = Shape<kDim, kPairs, lane_keys(kDim, kSeveralSegments)>;

/// Calls body<Shape>() for every kernel of a head_dim.
template <int kDim, class Body>
void for_each_shape(Body&& body) {
  body.template operator()<ShapeOf<kDim, false, kManyPairs>>();
  body.template operator()<ShapeOf<kDim, false, kFewPairs>>();
  body.template operator()<ShapeOf<kDim, true, kManyPairs>>();
  body.template operator()<ShapeOf<kDim, true, kFewPairs>>();
}

}  // namespace

bool segments_serve(std::int32_t head_dim, std::int32_t group) {
  return head_dim % 32 == 0 && head_dim >= 32 && head_dim <= 128 && group <= kFewPairs;
}

std::int64_t segment_shared_bytes(std::int32_t head_dim) {
  std::int64_t bytes = INT64_MAX;
  const auto status = with_dim(head_dim, [&]<int kDim>() -> sdk::Status {
    bytes = 0;
    for_each_shape<kDim>([&]<class S>() { bytes = std::max<std::int64_t>(bytes, sizeof(Tile<S>)); });
    return {};
  });
  return status.ok() ? bytes : INT64_MAX;
}

sdk::Status prepare_segments(std::int32_t head_dim) {
  return with_dim(head_dim, []<int kDim>() -> sdk::Status {
    sdk::Status status;
    for_each_shape<kDim>([&]<class S>() {
      if (status.ok()) status = allow_shared_memory<S>();
    });
    return status;
  });
}

namespace {

/// Calls body<Shape>() for the kernels that serve a range.
template <class Body>
sdk::Status with_shape(std::int32_t head_dim, std::int32_t pairs, bool values, Body&& body) {
  return with_dim(head_dim, [&]<int kDim>() -> sdk::Status {
    if (values)
      return pairs == kFewPairs ? body.template operator()<ShapeOf<kDim, true, kFewPairs>>()
                                : body.template operator()<ShapeOf<kDim, true, kManyPairs>>();
    return pairs == kFewPairs ? body.template operator()<ShapeOf<kDim, false, kFewPairs>>()
                              : body.template operator()<ShapeOf<kDim, false, kManyPairs>>();
  });
}

}  // namespace

sdk::Status launch_segments(const SegmentArgs& args, const UnitRange& range, std::int32_t pairs, void* stream) {
  return with_shape(args.head_dim, pairs, range.values,
                    [&]<class S>() { return launch<S>(args, range, static_cast<cudaStream_t>(stream)); });
}

void list_segments(std::int32_t head_dim, std::int32_t pairs, bool values, sdk::KernelList& facts) {
  (void)with_shape(head_dim, pairs, values, [&]<class S>() -> sdk::Status {
    list<S>(values, facts);
    return {};
  });
}

}  // namespace tessera_exact
