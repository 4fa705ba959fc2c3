// Exact attention of one unit: rows x the query heads of one KV head x one segment of 256 positions.
//
// Scores: one lane owns one or two key positions. It keeps those keys in registers and forms whole dot products in the
// reference tree, four subtrees side by side, so that nothing is shuffled; queries are broadcast from shared memory.
// Values: one thread owns four components of some (row, head) pairs, each an fma chain over ascending positions.
#pragma once
#include <cuda_pipeline_primitives.h>

#include "launch.h"
#include "tessera/sdk/cuda.h"
#include "tessera/sdk/kv.h"
#include "units.h"

namespace tessera_exact {

namespace sdk = tessera::sdk;

inline constexpr int kSegment = sdk::kAttentionSegment;
inline constexpr int kTrees = kSegment / 32;
inline constexpr int kScoreStride = kSegment + 4;  // floats: rows start in different banks

/// What a kernel is compiled for. `kPairs` is the most (row, head) pairs of a unit; `kLaneKeys` are the keys in the
/// registers of one lane.
template <int kDim_, int kPairs_, int kLaneKeys_>
struct Shape {
  static constexpr int kDim = kDim_;
  static constexpr int kPairs = kPairs_;
  static constexpr int kLaneKeys = kLaneKeys_;
  static constexpr int kWarps = kSegment / (32 * kLaneKeys);  // together they hold a segment
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kBlocks = kDim <= 64 ? 2 : 1;  // of a multiprocessor
  static constexpr int kQuads = kDim / 4;
  static constexpr int kOwners = kThreads / kQuads;              // threads that share a quad of components
  static constexpr int kOwn = (kPairs + kOwners - 1) / kOwners;  // pairs of one thread
  static constexpr int kKeyStride = kDim + 4;                    // floats
};

/// Shared memory of one block.
template <class S>
struct Tile {
  float keys[kSegment * S::kKeyStride];  // K; V once every lane has its keys in registers
  float scores[S::kPairs * kScoreStride];
  float queries[S::kPairs * S::kDim];
  float partial[kTrees * S::kPairs];  // largest score, then sum, of each tree of 32 positions
  float final[S::kPairs];             // largest score, then sum, of each pair
  std::int32_t seen[S::kPairs];       // positions of the segment that each pair's row sees
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
  std::int32_t value_row;       // of the tile, where V begins

  /// Positions of this segment that the row of a pair sees.
  __device__ std::int32_t visible(std::int32_t pair) const {
    const std::int32_t end = first_position + pair / group + 1 - begin;
    return end < 0 ? 0 : (end < kSegment ? end : kSegment);
  }
  __device__ std::int32_t packed_row(std::int32_t pair) const { return slice.first_row + unit.row + pair / group; }
  __device__ std::int32_t head(std::int32_t pair) const { return unit.kv_head * group + pair % group; }
};

/// Lets the next kernel of the stream take the multiprocessors that this one leaves free. It may prepare, and waits for
/// this one's results with wait_for_last_kernel.
__device__ inline void allow_next_kernel() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

__device__ inline void wait_for_last_kernel() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

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
  // A short unit has room for V beside K, and need not wait for it later.
  work.value_row = unit.segments == 1 && work.keys <= kSegment / 2 ? kSegment / 2 : 0;
  return work;
}

/// The step's unit number `index` when no list of them was written: tiles of the slices in order, KV heads within,
/// segments within. Every warp finds it for itself. Beyond the last one, `slice` is -1.
__device__ inline Unit find_unit(const SegmentArgs& args, int index) {
  if (args.num_slices == 1 && args.slices[0].num_rows <= args.tile_rows) {
    const int segments = segments_of(args.slices[0].first_position + args.slices[0].num_rows);
    return {index < segments * args.kv_heads ? 0 : -1, 0, index / segments, index % segments, segments};
  }
  const int lane = threadIdx.x % 32;
  int before = 0;
  for (int base = 0; base < args.num_slices; base += 32) {
    int count = 0;
    const sdk::Slice slice = args.slices[min(base + lane, args.num_slices - 1)];
    if (base + lane < args.num_slices)
      for (int row = 0; row < slice.num_rows; row += args.tile_rows)
        count += segments_of(tile_length(slice, row, args.tile_rows)) * args.kv_heads;
    int sum = count;
    for (int width = 1; width < 32; width *= 2) {
      const int other = __shfl_up_sync(sdk::kWholeWarp, sum, width);
      if (lane >= width) sum += other;
    }
    const unsigned reached = __ballot_sync(sdk::kWholeWarp, before + sum > index);
    if (reached != 0) {
      const int owner = __ffs(static_cast<int>(reached)) - 1;
      int left = index - before - __shfl_sync(sdk::kWholeWarp, sum - count, owner);
      const int first = __shfl_sync(sdk::kWholeWarp, slice.first_position, owner);
      const int rows = __shfl_sync(sdk::kWholeWarp, slice.num_rows, owner);
      for (int row = 0;; row += args.tile_rows) {
        const int segments = segments_of(first + min(row + args.tile_rows, rows));
        if (left < segments * args.kv_heads) return {base + owner, row, left / segments, left % segments, segments};
        left -= segments * args.kv_heads;
      }
    }
    before += __shfl_sync(sdk::kWholeWarp, sum, 31);
  }
  return {-1, 0, 0, 0, 0};
}

/// Starts copying the unit's positions of K or V into shared memory, from row `first` of the tile on.
template <class S>
__device__ inline void stage(const SegmentArgs& args, const Work& work, const float* pool, int first, Tile<S>& tile) {
  const float* head = pool + work.unit.kv_head * S::kDim + threadIdx.x % S::kQuads * 4;
  float* target = &tile.keys[first * S::kKeyStride + threadIdx.x % S::kQuads * 4];
  const int width = args.kv_heads * S::kDim;
  constexpr int kStep = S::kThreads / S::kQuads;  // rows at a time
  if (threadIdx.x < kStep * S::kQuads)
#pragma unroll 4
    for (int key = threadIdx.x / S::kQuads; key < work.keys; key += kStep)
      __pipeline_memcpy_async(target + key * S::kKeyStride,
                              head + static_cast<std::int64_t>(tile.pages[key / sdk::kPageSize]) * args.page_stride +
                                  key % sdk::kPageSize * width,
                              16);
  __pipeline_commit();
}

/// What every thread of the block needs to know first.
template <class S>
__device__ inline void load_facts(const SegmentArgs& args, const Work& work, Tile<S>& tile) {
  const int count = (work.keys + sdk::kPageSize - 1) / sdk::kPageSize;
  if (threadIdx.x < count)
    tile.pages[threadIdx.x] = args.pages[work.slice.first_page + work.begin / sdk::kPageSize + threadIdx.x];
  if (threadIdx.x >= S::kThreads - S::kPairs)
    tile.seen[threadIdx.x - (S::kThreads - S::kPairs)] = work.visible(threadIdx.x - (S::kThreads - S::kPairs));
  __syncthreads();
}

template <class S>
__device__ inline void load_queries(const SegmentArgs& args, const Work& work, Tile<S>& tile) {
  for (int i = threadIdx.x; i < work.pairs * S::kQuads; i += S::kThreads) {
    const int pair = i / S::kQuads, quad = i % S::kQuads;
    const float* source = args.q + work.packed_row(pair) * args.q_stride + work.head(pair) * S::kDim;
    __pipeline_memcpy_async(&tile.queries[pair * S::kDim + quad * 4], source + quad * 4, 16);
  }
}

/// The dot products of a lane's keys with two queries in the order of docs/numerics.md: lane l of the reference is l
/// and its successors l + 32, ...; the four lanes of a quad belong to four different subtrees, which are added last.
/// Two queries at a time keep the multiprocessor busy while the next ones are loaded.
template <class S>
__device__ inline void dot(const float (&keys)[S::kLaneKeys][S::kDim], const float* first, const float* second,
                           float scale, float (&scores)[2][S::kLaneKeys]) {
  constexpr int kOrder[8] = {0, 16, 8, 24, 4, 20, 12, 28};  // first lane of each quad, depth first
  float lane[2][S::kLaneKeys][8][4];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
#pragma unroll
    for (int block = 0; block < S::kDim; block += 32) {
      const int at = block + kOrder[i];
      const float4 q[2] = {*reinterpret_cast<const float4*>(first + at), *reinterpret_cast<const float4*>(second + at)};
#pragma unroll
      for (int query = 0; query < 2; ++query) {
        const float part[4] = {q[query].x, q[query].y, q[query].z, q[query].w};
#pragma unroll
        for (int key = 0; key < S::kLaneKeys; ++key)
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            float& sum = lane[query][key][i][c];
            sum = block == 0 ? __fmul_rn(part[c], keys[key][at + c]) : __fmaf_rn(part[c], keys[key][at + c], sum);
          }
      }
    }
#pragma unroll
    for (int query = 0; query < 2; ++query)
#pragma unroll
      for (int key = 0; key < S::kLaneKeys; ++key)
#pragma unroll
        for (int c = 0; c < 4; ++c) {  // as soon as both halves are there
          auto& part = lane[query][key];
          if (i % 2 == 1) part[i - 1][c] = __fadd_rn(part[i - 1][c], part[i][c]);
          if (i % 4 == 3) part[i - 3][c] = __fadd_rn(part[i - 3][c], part[i - 1][c]);
          if (i == 7) part[0][c] = __fadd_rn(part[0][c], part[4][c]);
        }
  }
#pragma unroll
  for (int query = 0; query < 2; ++query)
#pragma unroll
    for (int key = 0; key < S::kLaneKeys; ++key) {
      const float(&sum)[4] = lane[query][key][0];
      scores[query][key] = __fmul_rn(__fadd_rn(__fadd_rn(sum[0], sum[2]), __fadd_rn(sum[1], sum[3])), scale);
    }
}

/// All scores of the unit to shared memory. K must be on its way; on return it is in
/// registers, and V is on its way where the unit goes on to need it.
template <class S>
__device__ inline void score(const SegmentArgs& args, const Work& work, Tile<S>& tile) {
  constexpr int kGroup = 32 * S::kLaneKeys;  // positions of one warp
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int groups = (work.keys + kGroup - 1) / kGroup, parts = S::kWarps / groups;
  const int position = warp % groups * kGroup + lane, part = warp / groups;
  if (work.value_row > 0)
    __pipeline_wait_prior(1);  // V follows K and is not needed yet
  else
    __pipeline_wait_prior(0);
  __syncthreads();
  float keys[S::kLaneKeys][S::kDim];
#pragma unroll
  for (int i = 0; i < S::kLaneKeys; ++i)
#pragma unroll
    for (int d = 0; d < S::kDim; d += 4) {
      float4 k{0.0f, 0.0f, 0.0f, 0.0f};  // past the unit's positions lies V, or nothing
      if (position + 32 * i < work.keys)
        k = *reinterpret_cast<const float4*>(&tile.keys[(position + 32 * i) * S::kKeyStride + d]);
      keys[i][d] = k.x, keys[i][d + 1] = k.y, keys[i][d + 2] = k.z, keys[i][d + 3] = k.w;
    }
  __syncthreads();
  if (work.unit.segments == 1 && work.value_row == 0) stage(args, work, args.v, 0, tile);
  if (part >= parts) return;
  const int share = (work.pairs + parts - 1) / parts;
  const int end = min(work.pairs, (part + 1) * share);
  for (int pair = part * share; pair < end; pair += 2) {
    const int next = min(pair + 1, end - 1);
    float scores[2][S::kLaneKeys];
    dot<S>(keys, &tile.queries[pair * S::kDim], &tile.queries[next * S::kDim], args.scale, scores);
#pragma unroll
    for (int i = 0; i < S::kLaneKeys; ++i) {
      tile.scores[pair * kScoreStride + position + 32 * i] = scores[0][i];
      tile.scores[next * kScoreStride + position + 32 * i] = scores[1][i];
    }
  }
}

/// Hands the scores to the caller who asked for them.
template <class S>
__device__ inline void emit(const SegmentArgs& args, const Work& work, const Tile<S>& tile) {
  for (int i = threadIdx.x; i < work.pairs * kSegment; i += S::kThreads) {
    const int pair = i / kSegment, key = i % kSegment;
    if (key < tile.seen[pair])
      args.emitted[(static_cast<std::int64_t>(work.packed_row(pair)) * args.q_heads + work.head(pair)) *
                       args.emitted_stride +
                   work.begin + key] = tile.scores[pair * kScoreStride + key];
  }
}

/// Four neighbouring threads share a tree of 32 positions of a pair: thread `quarter` has positions quarter, quarter +
/// 4,
/// ... of it, which are one subtree each. `seen` is how many of the 32 the row sees.
template <class S, class Body>
__device__ inline void for_each_quarter(const Work& work, const Tile<S>& tile, Body&& body) {
  const int trees = (work.keys + 31) / 32;
  for (int task = threadIdx.x; task < S::kPairs * trees * 4; task += S::kThreads) {
    const int pair = task / 4 % S::kPairs, tree = task / 4 / S::kPairs;
    if (pair < work.pairs) body(pair, tree, task % 4, min(max(tile.seen[pair] - tree * 32, 0), 32));
  }
}

/// The four threads that share a tree.
__device__ inline unsigned quad_mask() { return 0xFu << (threadIdx.x % 32 / 4 * 4); }

/// tile.final = the largest score of each pair in this segment; -inf where it sees nothing.
template <class S>
__device__ inline void find_largest(const Work& work, Tile<S>& tile) {
  for_each_quarter<S>(work, tile, [&](int pair, int tree, int quarter, int seen) {
    const float* row = &tile.scores[pair * kScoreStride + tree * 32 + quarter];
    float largest = -INFINITY;
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (4 * i + quarter < seen) largest = fmaxf(largest, row[4 * i]);
    largest = fmaxf(largest, __shfl_xor_sync(quad_mask(), largest, 2));
    largest = fmaxf(largest, __shfl_xor_sync(quad_mask(), largest, 1));
    if (quarter == 0) tile.partial[tree * S::kPairs + pair] = largest;
  });
  __syncthreads();
  if (threadIdx.x < work.pairs) {
    float largest = -INFINITY;
    for (int tree = 0; tree < (work.keys + 31) / 32; ++tree)
      largest = fmaxf(largest, tile.partial[tree * S::kPairs + threadIdx.x]);
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
template <class S>
__device__ inline void weigh(const Work& work, Tile<S>& tile) {
  for_each_quarter<S>(work, tile, [&](int pair, int tree, int quarter, int seen) {
    float* row = &tile.scores[pair * kScoreStride + tree * 32 + quarter];
    const float largest = tile.final[pair];
    float lanes[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      lanes[i] = 4 * i + quarter < seen ? sdk::exp_f32(__fsub_rn(row[4 * i], largest)) : 0.0f;
      row[4 * i] = lanes[i];
    }
    fold<4>(lanes);  // +16, +8, +4
    float sum = __fadd_rn(lanes[0], __shfl_xor_sync(quad_mask(), lanes[0], 2));
    sum = __fadd_rn(sum, __shfl_xor_sync(quad_mask(), sum, 1));
    if (quarter == 0) tile.partial[tree * S::kPairs + pair] = sum;
  });
  __syncthreads();
  if (threadIdx.x < work.pairs) {
    const int trees = (work.keys + 31) / 32;
    float sums[kTrees];
#pragma unroll
    for (int i = 0; i < kTrees; ++i) sums[i] = i < trees ? tile.partial[i * S::kPairs + threadIdx.x] : 0.0f;
    fold<kTrees / 2>(sums);
    tile.final[threadIdx.x] = sums[0];
  }
  __syncthreads();
}

/// Value vectors of the pairs: to the output when this is their only segment, else to the unit's region.
template <class S>
__device__ inline void sum_values(const SegmentArgs& args, const Work& work, const Tile<S>& tile, float* region) {
  const int quad = threadIdx.x % S::kQuads * 4, first = threadIdx.x / S::kQuads * S::kOwn;
  if (first >= work.pairs || threadIdx.x >= S::kOwners * S::kQuads) return;
  const float* values = &tile.keys[work.value_row * S::kKeyStride + quad];
  const float* weights = &tile.scores[first * kScoreStride];
  float4 sums[S::kOwn];
#pragma unroll
  for (int i = 0; i < S::kOwn; ++i) sums[i] = {0.0f, 0.0f, 0.0f, 0.0f};
  const auto chain = [](float weight, const float4& v, float4& sum) {
    sum.x = __fmaf_rn(weight, v.x, sum.x), sum.y = __fmaf_rn(weight, v.y, sum.y);
    sum.z = __fmaf_rn(weight, v.z, sum.z), sum.w = __fmaf_rn(weight, v.w, sum.w);
  };
  const int full = tile.seen[first] / 4 * 4;  // all the thread's rows see these
#pragma unroll 2
  for (int key = 0; key < full; key += 4) {
    float4 v[4];
#pragma unroll
    for (int next = 0; next < 4; ++next)
      v[next] = *reinterpret_cast<const float4*>(values + (key + next) * S::kKeyStride);
#pragma unroll
    for (int i = 0; i < S::kOwn; ++i) {
      const float4 w = *reinterpret_cast<const float4*>(weights + i * kScoreStride + key);
      chain(w.x, v[0], sums[i]), chain(w.y, v[1], sums[i]), chain(w.z, v[2], sums[i]), chain(w.w, v[3], sums[i]);
    }
  }
  for (int key = full; key < work.keys; ++key) {
    const float4 v = *reinterpret_cast<const float4*>(values + key * S::kKeyStride);
#pragma unroll
    for (int i = 0; i < S::kOwn; ++i)
      if (key < tile.seen[min(first + i, S::kPairs - 1)]) chain(weights[i * kScoreStride + key], v, sums[i]);
  }
#pragma unroll
  for (int i = 0; i < S::kOwn; ++i) {
    const int pair = first + i;
    if (pair >= work.pairs) continue;
    if (work.unit.segments > 1) {
      *reinterpret_cast<float4*>(&region[pair * S::kDim + quad]) = sums[i];
      continue;
    }
    const float inverse = __fdiv_rn(1.0f, tile.final[pair]);
    float* out = args.out + work.packed_row(pair) * args.out_stride + work.head(pair) * S::kDim + quad;
    *reinterpret_cast<float4*>(out) = {__fmul_rn(sums[i].x, inverse), __fmul_rn(sums[i].y, inverse),
                                       __fmul_rn(sums[i].z, inverse), __fmul_rn(sums[i].w, inverse)};
  }
}

/// The last block of a tile to arrive adds the segments, ascending. `last` is shared memory.
template <class S>
__device__ inline void merge(const SegmentArgs& args, const Work& work, std::int32_t index, bool& last) {
  const std::int32_t first = index - work.unit.segment;  // the tile's unit of segment 0
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(&args.arrivals[first], 1u) + 1 == static_cast<std::uint32_t>(work.unit.segments);
    if (last) args.arrivals[first] = 0;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  for (int i = threadIdx.x; i < work.pairs * S::kDim; i += S::kThreads) {
    const int pair = i / S::kDim, component = i % S::kDim;
    const int segments = segments_of(work.first_position + pair / work.group + 1);
    float sum = 0.0f, value = 0.0f;
#pragma unroll 8
    for (int segment = 0; segment < segments; ++segment) {
      const std::int64_t unit = first + segment;
      const float part = __ldcg(&args.unit_sums[unit * S::kPairs + pair]);
      const float vector = __ldcg(&args.regions[unit * S::kPairs * kSegment + i]);
      sum = segment == 0 ? part : __fadd_rn(sum, part);
      value = segment == 0 ? vector : __fadd_rn(value, vector);
    }
    args.out[work.packed_row(pair) * args.out_stride + work.head(pair) * S::kDim + component] =
        __fmul_rn(value, __fdiv_rn(1.0f, sum));
  }
}

}  // namespace tessera_exact
