// The published tiled GQA kernels in our order: a block shares staged tiles between neighbouring rows of one request
// and the query heads of one KV head; one warp works for one (row, head).
#pragma once
#include "launch.h"
#include "tessera/sdk/cuda.h"
#include "tessera/sdk/kv.h"
#include "tessera/sdk/numerics.h"

namespace tessera_exact {

namespace sdk = tessera::sdk;

inline constexpr int kSegment = sdk::kAttentionSegment;
inline constexpr int kTrees = kSegment / 32;

/// One warp's (row, head), and the block's slice.
struct Warp {
  sdk::Slice slice;
  std::int32_t row;   // within the slice
  std::int32_t head;  // query head
  std::int32_t kv_head;
  std::int32_t length;   // positions the row sees; 0 = this warp has no row and only helps to stage
  std::int32_t longest;  // of the block's rows

  __device__ std::int32_t packed_row() const { return slice.first_row + row; }
};

__device__ inline Warp warp_of(const TiledArgs& args) {
  Warp warp;
  warp.slice = args.slices[blockIdx.z];
  const int first = static_cast<int>(blockIdx.y) * args.tile_rows;
  const int index = static_cast<int>(threadIdx.x) / 32;
  warp.kv_head = static_cast<int>(blockIdx.x);
  warp.row = first + index / args.group;
  warp.head = warp.kv_head * args.group + index % args.group;
  const int last = min(first + args.tile_rows, warp.slice.num_rows);
  warp.longest = first < warp.slice.num_rows ? warp.slice.first_position + last : 0;
  warp.length = warp.row < last ? warp.slice.first_position + warp.row + 1 : 0;
  return warp;
}

/// Where K or V of a position lies: in the pool, or (hybrid) among the step's own rows.
struct Source {
  const float* pool;
  const float* own;  // null: pool only
  const std::int32_t* table;

  __device__ const float* at(const TiledArgs& args, const Warp& warp, int position) const {
    const int width = args.kv_heads * args.head_dim;
    const int own_row = position - warp.slice.first_position;
    const float* row = own != nullptr && own_row >= 0
                           ? own + static_cast<std::int64_t>(warp.slice.first_row + own_row) * width
                           : pool + table[position / sdk::kPageSize] * args.page_stride +
                                 static_cast<std::int64_t>(position % sdk::kPageSize) * width;
    return row + warp.kv_head * args.head_dim;
  }
};

/// Positions [begin, begin + kKeys) of K or V to shared memory; zeros past the block's longest row.
template <int kKeys>
__device__ inline void stage(const TiledArgs& args, const Warp& warp, const Source& source, int begin, float* tile) {
  const int quads = args.head_dim / 4;
  for (int i = threadIdx.x; i < kKeys * quads; i += blockDim.x) {
    const int position = begin + i / quads;
    float4 value{0.0f, 0.0f, 0.0f, 0.0f};
    if (position < warp.longest)
      value = *reinterpret_cast<const float4*>(source.at(args, warp, position) + i % quads * 4);
    reinterpret_cast<float4*>(tile)[i] = value;
  }
}

/// One component of every 32 a lane: lane, lane + 32, ...
template <int kParts>
struct Lanes {
  float part[kParts];

  __device__ void load(const float* row, int head_dim) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kParts; ++i) part[i] = lane + 32 * i < head_dim ? row[lane + 32 * i] : 0.0f;
  }
  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kParts; ++i) part[i] = 0.0f;
  }
};

/// The reference's score: lane chains, then the tree; every lane gets it.
template <int kParts>
__device__ inline float score(const Lanes<kParts>& q, const float* key, const TiledArgs& args) {
  const int lane = threadIdx.x % 32;
  float sum = __fmul_rn(q.part[0], key[lane]);
#pragma unroll
  for (int i = 1; i < kParts; ++i)
    if (32 * i < args.head_dim) sum = __fmaf_rn(q.part[i], key[lane + 32 * i], sum);
  return __fmul_rn(sdk::warp_fold_32(sum), args.scale);
}

/// values = fma(weight, V row, values), component by component.
template <int kParts>
__device__ inline void add_values(float weight, const float* row, const TiledArgs& args, Lanes<kParts>& values) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kParts; ++i)
    if (32 * i < args.head_dim) values.part[i] = __fmaf_rn(weight, row[lane + 32 * i], values.part[i]);
}

/// Scores of positions [begin, end) of every warp, through shared tiles, into `scores` (from index 0) when not null.
/// Returns the largest the warp's row sees, or `largest`.
template <int kParts, int kKeys>
__device__ inline float score_range(const TiledArgs& args, const Warp& warp, const Source& keys, int begin, int end,
                                    const Lanes<kParts>& q, float* tile, float* scores, float* emitted, float largest) {
  for (int base = begin; base < min(end, warp.longest); base += kKeys) {
    __syncthreads();
    stage<kKeys>(args, warp, keys, base, tile);
    __syncthreads();
    const int count = min(min(kKeys, end - base), warp.length - base);
    for (int i = 0; i < count; ++i) {
      const float value = score(q, tile + i * args.head_dim, args);
      largest = fmaxf(largest, value);
      if (threadIdx.x % 32 != 0) continue;
      if (scores != nullptr) scores[base - begin + i] = value;
      if (emitted != nullptr) emitted[base + i] = value;
    }
  }
  __syncwarp();
  return largest;
}

/// Scores of one segment become weights; returns their sum in the reference's order. Absent lanes are +0.
__device__ inline float weigh_segment(float* scores, int count, float largest) {
  const int lane = threadIdx.x % 32;
  float sums[kTrees];
#pragma unroll
  for (int tree = 0; tree < kTrees; ++tree) {
    const int j = tree * 32 + lane;
    const float weight = j < count ? sdk::exp_f32(__fsub_rn(scores[j], largest)) : 0.0f;
    if (j < count) scores[j] = weight;
    sums[tree] = tree * 32 < count ? sdk::warp_fold_32(weight) : 0.0f;
  }
  __syncwarp();
  const float a = __fadd_rn(__fadd_rn(sums[0], sums[4]), __fadd_rn(sums[2], sums[6]));
  const float b = __fadd_rn(__fadd_rn(sums[1], sums[5]), __fadd_rn(sums[3], sums[7]));
  return __fadd_rn(a, b);
}

/// The block's shared memory.
struct Shared {
  float* tile;    // [kKeys][head_dim], K or V (online: both, one after the other)
  float* scores;  // the warp's own
  std::int32_t* table;
};

__device__ inline Shared shared_of(const TiledArgs& args, const Warp& warp, float* memory, int tile_floats,
                                   int score_floats) {
  const int warps = static_cast<int>(blockDim.x) / 32;
  Shared shared{memory, memory + tile_floats + static_cast<int>(threadIdx.x) / 32 * score_floats,
                reinterpret_cast<std::int32_t*>(memory + tile_floats + warps * score_floats)};
  for (int i = threadIdx.x; i < min(args.table, warp.slice.num_pages); i += blockDim.x)
    shared.table[i] = args.pages[warp.slice.first_page + i];
  __syncthreads();
  return shared;
}

__device__ inline float* emitted_row(const TiledArgs& args, const Warp& warp) {
  if (args.emitted == nullptr || warp.length == 0) return nullptr;
  return args.emitted + (static_cast<std::int64_t>(warp.packed_row()) * args.q_heads + warp.head) * args.emitted_stride;
}

}  // namespace tessera_exact
