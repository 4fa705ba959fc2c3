// Exact attention of one unit: rows x the query heads of one KV head x one segment of 256 positions.
//
// Scores: one lane owns one key position. It keeps that key in registers and forms whole dot products in the reference
// tree, four subtrees side by side, so that nothing is shuffled; queries are broadcast from shared memory. Values: one
// lane owns one or two (row, head) pairs and some components, each an fma chain over ascending positions.
#pragma once
#include <cuda_pipeline_primitives.h>

#include "launch.h"
#include "tessera/sdk/kv.h"
#include "units.h"

namespace tessera_exact {

namespace sdk = tessera::sdk;

inline constexpr int kSegment = sdk::kAttentionSegment;
inline constexpr int kThreads = 256;
inline constexpr int kWarps = kThreads / 32;
inline constexpr int kGroups = kSegment / 32;      // trees of 32 positions
inline constexpr int kScoreStride = kSegment + 4;  // floats: rows start in different banks

/// Shared memory of one block. `kPairs` is the most (row, head) pairs of a unit.
template <int kDim, int kPairs>
struct Tile {
  static constexpr int kKeyStride = kDim + 4;
  float keys[kSegment * kKeyStride];  // K; V once every lane has its key in registers
  float scores[kPairs * kScoreStride];
  float queries[kPairs * kDim];
  float partial[kGroups * kPairs];  // largest score, then sum, of each tree
  float final[kPairs];              // largest score, then sum, of each pair
  std::int32_t pages[kSegment / sdk::kPageSize];
  bool last;
};

/// What a block knows about its unit.
struct Work {
  Unit unit;
  sdk::Slice slice;
  std::int32_t pairs;           // (row, head) pairs: row-major, heads within
  std::int32_t group;           // query heads of a KV head
  std::int32_t first_position;  // of the tile's first row
  std::int32_t begin;           // first position of the segment
  std::int32_t keys;            // positions of the segment that some row sees, 1..256

  /// Positions of this segment that the row of a pair sees.
  __device__ std::int32_t visible(std::int32_t pair) const {
    const std::int32_t end = first_position + pair / group + 1 - begin;
    return end < 0 ? 0 : (end < kSegment ? end : kSegment);
  }
  __device__ std::int32_t packed_row(std::int32_t pair) const { return slice.first_row + unit.row + pair / group; }
  __device__ std::int32_t head(std::int32_t pair) const { return unit.kv_head * group + pair % group; }
};

__device__ inline Work work_of(const SegmentArgs& args, const Unit& unit) {
  Work work;
  work.unit = unit;
  work.slice = args.slices[unit.slice];
  const std::int32_t left = work.slice.num_rows - unit.row;
  const std::int32_t rows = left < args.tile_rows ? left : args.tile_rows;
  work.group = args.group;
  work.pairs = rows * args.group;
  work.first_position = work.slice.first_position + unit.row;
  work.begin = unit.segment * kSegment;
  const std::int32_t end = work.first_position + rows - work.begin;
  work.keys = end < kSegment ? end : kSegment;
  return work;
}

/// Starts copying the unit's positions of K or V into shared memory.
template <int kDim, int kPairs>
__device__ inline void stage(const SegmentArgs& args, const Work& work, const float* pool, Tile<kDim, kPairs>& tile) {
  constexpr int kQuads = kDim / 4;
  for (int i = threadIdx.x; i < work.keys * kQuads; i += kThreads) {
    const int key = i / kQuads, quad = i % kQuads;
    const float* source = pool + static_cast<std::int64_t>(tile.pages[key / sdk::kPageSize]) * args.page_stride +
                          (static_cast<std::int64_t>(key % sdk::kPageSize) * args.kv_heads + work.unit.kv_head) * kDim;
    __pipeline_memcpy_async(&tile.keys[key * Tile<kDim, kPairs>::kKeyStride + quad * 4], source + quad * 4, 16);
  }
  __pipeline_commit();
}

template <int kDim, int kPairs>
__device__ inline void load_pages(const SegmentArgs& args, const Work& work, Tile<kDim, kPairs>& tile) {
  const int count = (work.keys + sdk::kPageSize - 1) / sdk::kPageSize;
  if (threadIdx.x < count)
    tile.pages[threadIdx.x] = args.pages[work.slice.first_page + work.begin / sdk::kPageSize + threadIdx.x];
  __syncthreads();
}

template <int kDim, int kPairs>
__device__ inline void load_queries(const SegmentArgs& args, const Work& work, Tile<kDim, kPairs>& tile) {
  constexpr int kQuads = kDim / 4;
  for (int i = threadIdx.x; i < work.pairs * kQuads; i += kThreads) {
    const int pair = i / kQuads, quad = i % kQuads;
    const float* source = args.q + work.packed_row(pair) * args.q_stride + work.head(pair) * kDim;
    __pipeline_memcpy_async(&tile.queries[pair * kDim + quad * 4], source + quad * 4, 16);
  }
}

/// A key's dot product with one query in the order of docs/numerics.md: lane l of the reference is l and its successors
/// l + 32, ...; the four lanes of a quad belong to four different subtrees, which are added last.
template <int kDim>
__device__ inline float dot(const float (&key)[kDim], const float* query, float scale) {
  constexpr int kOrder[8] = {0, 16, 8, 24, 4, 20, 12, 28};  // first lane of each quad, depth first
  float lane[8][4];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int first = kOrder[i];
#pragma unroll
    for (int block = 0; block < kDim; block += 32) {
      const float4 q = *reinterpret_cast<const float4*>(query + block + first);
      const float part[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
      for (int c = 0; c < 4; ++c)
        lane[i][c] =
            block == 0 ? __fmul_rn(part[c], key[first + c]) : __fmaf_rn(part[c], key[block + first + c], lane[i][c]);
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) {  // as soon as both halves are there
      if (i % 2 == 1) lane[i - 1][c] = __fadd_rn(lane[i - 1][c], lane[i][c]);
      if (i % 4 == 3) lane[i - 3][c] = __fadd_rn(lane[i - 3][c], lane[i - 1][c]);
      if (i == 7) lane[0][c] = __fadd_rn(lane[0][c], lane[4][c]);
    }
  }
  const float even = __fadd_rn(lane[0][0], lane[0][2]), odd = __fadd_rn(lane[0][1], lane[0][3]);
  return __fmul_rn(__fadd_rn(even, odd), scale);
}

/// All scores of the unit to shared memory (and to the caller's, when asked). K must be on its way; on return it is in
/// registers and its shared memory is free.
template <int kDim, int kPairs>
__device__ inline void score(const SegmentArgs& args, const Work& work, Tile<kDim, kPairs>& tile) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int groups = (work.keys + 31) / 32, parts = kWarps / groups;
  const int position = warp % groups * 32 + lane, part = warp / groups;
  __pipeline_wait_prior(0);
  __syncthreads();
  float key[kDim];
#pragma unroll
  for (int d = 0; d < kDim; d += 4) {
    const float4 k = *reinterpret_cast<const float4*>(&tile.keys[position * Tile<kDim, kPairs>::kKeyStride + d]);
    key[d] = k.x, key[d + 1] = k.y, key[d + 2] = k.z, key[d + 3] = k.w;
  }
  __syncthreads();
  if (work.unit.segments == 1) stage(args, work, args.v, tile);  // its values follow in this launch
  if (part >= parts) return;
  const int share = (work.pairs + parts - 1) / parts;
  const int end = min(work.pairs, (part + 1) * share);
#pragma unroll 2
  for (int pair = part * share; pair < end; ++pair) {
    const float value = dot<kDim>(key, &tile.queries[pair * kDim], args.scale);
    tile.scores[pair * kScoreStride + position] = value;
    if (args.emitted != nullptr && position < work.visible(pair))
      args.emitted[(static_cast<std::int64_t>(work.packed_row(pair)) * args.q_heads + work.head(pair)) *
                       args.emitted_stride +
                   work.begin + position] = value;
  }
}

/// Tasks are (pair, tree of 32 positions), pairs first, so that neighbouring lanes read different rows of scores.
template <class Body>
__device__ inline void for_each_tree(const Work& work, Body&& body) {
  const int groups = (work.keys + 31) / 32;
  for (int task = threadIdx.x; task < work.pairs * groups; task += kThreads) {
    const int pair = task % work.pairs, group = task / work.pairs;
    const int seen = min(max(work.visible(pair) - group * 32, 0), 32);
    body(pair, group, seen);
  }
}

/// tile.final = the largest score of each pair in this segment; -inf where it sees nothing.
template <int kDim, int kPairs>
__device__ inline void find_largest(const Work& work, Tile<kDim, kPairs>& tile) {
  for_each_tree(work, [&](int pair, int group, int seen) {
    const float* row = &tile.scores[pair * kScoreStride + group * 32];
    float largest = -INFINITY;
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
      const float4 s = *reinterpret_cast<const float4*>(row + i);
      if (i < seen) largest = fmaxf(largest, s.x);
      if (i + 1 < seen) largest = fmaxf(largest, s.y);
      if (i + 2 < seen) largest = fmaxf(largest, s.z);
      if (i + 3 < seen) largest = fmaxf(largest, s.w);
    }
    tile.partial[group * kPairs + pair] = largest;
  });
  __syncthreads();
  if (threadIdx.x < work.pairs) {
    float largest = -INFINITY;
    for (int group = 0; group < (work.keys + 31) / 32; ++group)
      largest = fmaxf(largest, tile.partial[group * kPairs + threadIdx.x]);
    tile.final[threadIdx.x] = largest;
  }
  __syncthreads();
}

/// The tree of docs/numerics.md over 2 * kWidth values in registers, into the first.
template <int kWidth, int kCount>
__device__ inline void fold(float (&lanes)[kCount]) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i) lanes[i] = __fadd_rn(lanes[i], lanes[i + kWidth]);
  if constexpr (kWidth > 1) fold<kWidth / 2>(lanes);
}

/// Scores become weights e = exp(score - largest), +0 where a row sees nothing; tile.final becomes their sums.
template <int kDim, int kPairs>
__device__ inline void weigh(const Work& work, Tile<kDim, kPairs>& tile) {
  for_each_tree(work, [&](int pair, int group, int seen) {
    float* row = &tile.scores[pair * kScoreStride + group * 32];
    const float largest = tile.final[pair];
    float lanes[32];
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
      float4 s = *reinterpret_cast<const float4*>(row + i);
      s.x = i < seen ? sdk::exp_f32(__fsub_rn(s.x, largest)) : 0.0f;
      s.y = i + 1 < seen ? sdk::exp_f32(__fsub_rn(s.y, largest)) : 0.0f;
      s.z = i + 2 < seen ? sdk::exp_f32(__fsub_rn(s.z, largest)) : 0.0f;
      s.w = i + 3 < seen ? sdk::exp_f32(__fsub_rn(s.w, largest)) : 0.0f;
      *reinterpret_cast<float4*>(row + i) = s;
      lanes[i] = s.x, lanes[i + 1] = s.y, lanes[i + 2] = s.z, lanes[i + 3] = s.w;
    }
    fold<16>(lanes);
    tile.partial[group * kPairs + pair] = lanes[0];
  });
  __syncthreads();
  if (threadIdx.x < work.pairs) {
    const int groups = (work.keys + 31) / 32;
    float sums[kGroups];
#pragma unroll
    for (int i = 0; i < kGroups; ++i) sums[i] = i < groups ? tile.partial[i * kPairs + threadIdx.x] : 0.0f;
    fold<kGroups / 2>(sums);
    tile.final[threadIdx.x] = sums[0];
  }
  __syncthreads();
}

/// Where a unit's value vectors go: to the output when it is the only segment, else to its region.
template <int kPairs>
struct Sink {
  const SegmentArgs& args;
  const Work& work;
  float* region;

  __device__ void put(int pair, int component, float value, float sum) const {
    if (work.unit.segments == 1)
      args.out[work.packed_row(pair) * args.out_stride + work.head(pair) * args.head_dim + component] =
          __fmul_rn(value, __fdiv_rn(1.0f, sum));
    else
      region[pair * args.head_dim + component] = value;
  }
};

/// Many pairs: a lane owns pairs lane, lane + 32, ... and a warp one eighth of the components.
template <int kDim, int kPairs>
__device__ inline void sum_values_wide(const Work& work, const Tile<kDim, kPairs>& tile, const Sink<kPairs>& sink) {
  constexpr int kPerLane = kPairs / 32, kOwn = kDim / kWarps, kStride = Tile<kDim, kPairs>::kKeyStride;
  const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * kOwn;
  float sums[kPerLane][kOwn] = {};
  const auto add = [&](int key, const float(&weight)[kPerLane], const bool(&seen)[kPerLane]) {
#pragma unroll
    for (int d = 0; d < kOwn; d += 4) {
      const float4 v = *reinterpret_cast<const float4*>(&tile.keys[key * kStride + first + d]);
      const float part[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int i = 0; i < kPerLane; ++i)
#pragma unroll
        for (int c = 0; c < 4; ++c)
          if (seen[i]) sums[i][d + c] = __fmaf_rn(weight[i], part[c], sums[i][d + c]);
    }
  };
  const int full = work.visible(0) / 4 * 4;  // every row sees these
  for (int key = 0; key < full; key += 4) {
    float weights[4][kPerLane];
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const float4 w = *reinterpret_cast<const float4*>(&tile.scores[(lane + 32 * i) * kScoreStride + key]);
      weights[0][i] = w.x, weights[1][i] = w.y, weights[2][i] = w.z, weights[3][i] = w.w;
    }
    bool all[kPerLane];
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) all[i] = true;
#pragma unroll
    for (int next = 0; next < 4; ++next) add(key + next, weights[next], all);
  }
  for (int key = full; key < work.keys; ++key) {
    float weight[kPerLane];
    bool seen[kPerLane];
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      weight[i] = tile.scores[(lane + 32 * i) * kScoreStride + key];
      seen[i] = key < work.visible(lane + 32 * i);
    }
    add(key, weight, seen);
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int pair = lane + 32 * i;
    if (pair >= work.pairs) continue;
#pragma unroll
    for (int d = 0; d < kOwn; ++d) sink.put(pair, first + d, sums[i][d], tile.final[pair]);
  }
}

/// Few pairs: a thread owns one component of `kPasses` pairs.
template <int kDim, int kPairs, int kPasses>
__device__ inline void sum_values_narrow(const Work& work, const Tile<kDim, kPairs>& tile, const Sink<kPairs>& sink) {
  constexpr int kStep = kThreads / kDim, kStride = Tile<kDim, kPairs>::kKeyStride;
  const int component = threadIdx.x % kDim, first = threadIdx.x / kDim;
  if (first >= kStep) return;
  float sums[kPasses] = {};
  const auto row = [&](int pass) { return min(first + pass * kStep, kPairs - 1) * kScoreStride; };
  const int full = work.visible(0) / 4 * 4;
#pragma unroll 4
  for (int key = 0; key < full; key += 4) {
    float values[4];
#pragma unroll
    for (int next = 0; next < 4; ++next) values[next] = tile.keys[(key + next) * kStride + component];
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const float4 w = *reinterpret_cast<const float4*>(&tile.scores[row(pass) + key]);
      sums[pass] = __fmaf_rn(w.x, values[0], sums[pass]);
      sums[pass] = __fmaf_rn(w.y, values[1], sums[pass]);
      sums[pass] = __fmaf_rn(w.z, values[2], sums[pass]);
      sums[pass] = __fmaf_rn(w.w, values[3], sums[pass]);
    }
  }
  for (int key = full; key < work.keys; ++key)
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass)
      if (key < work.visible(first + pass * kStep))
        sums[pass] = __fmaf_rn(tile.scores[row(pass) + key], tile.keys[key * kStride + component], sums[pass]);
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    const int pair = first + pass * kStep;
    if (pair < work.pairs) sink.put(pair, component, sums[pass], tile.final[pair]);
  }
}

template <int kDim, int kPairs>
__device__ inline void sum_values(const Work& work, const Tile<kDim, kPairs>& tile, const Sink<kPairs>& sink) {
  if constexpr (kPairs > kNarrowPairs) {
    sum_values_wide(work, tile, sink);
  } else {
    constexpr int kStep = kThreads / kDim;
    const int passes = (work.pairs + kStep - 1) / kStep;
    if (passes <= 1) return sum_values_narrow<kDim, kPairs, 1>(work, tile, sink);
    if (passes <= 2) return sum_values_narrow<kDim, kPairs, 2>(work, tile, sink);
    if (passes <= 4) return sum_values_narrow<kDim, kPairs, 4>(work, tile, sink);
    sum_values_narrow<kDim, kPairs, 8>(work, tile, sink);
  }
}

/// The last block of a tile to arrive adds the segments, ascending.
template <int kDim, int kPairs>
__device__ inline void merge(const SegmentArgs& args, const Work& work, std::int32_t index, Tile<kDim, kPairs>& tile) {
  const std::int32_t first = index - work.unit.segment;  // the tile's unit of segment 0
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    tile.last = atomicAdd(&args.arrivals[first], 1u) + 1 == static_cast<std::uint32_t>(work.unit.segments);
    if (tile.last) args.arrivals[first] = 0;
  }
  __syncthreads();
  if (!tile.last) return;
  __threadfence();
  for (int i = threadIdx.x; i < work.pairs * kDim; i += kThreads) {
    const int pair = i / kDim, component = i % kDim;
    const int segments = segments_of(work.first_position + pair / work.group + 1);
    float sum = 0.0f, value = 0.0f;
#pragma unroll 4
    for (int segment = 0; segment < segments; ++segment) {
      const std::int64_t unit = first + segment;
      const float part = __ldcg(&args.unit_sums[unit * kPairs + pair]);
      const float vector = __ldcg(&args.regions[unit * kPairs * kSegment + i]);
      sum = segment == 0 ? part : __fadd_rn(sum, part);
      value = segment == 0 ? vector : __fadd_rn(value, vector);
    }
    args.out[work.packed_row(pair) * args.out_stride + work.head(pair) * kDim + component] =
        __fmul_rn(value, __fdiv_rn(1.0f, sum));
  }
}

}  // namespace tessera_exact
