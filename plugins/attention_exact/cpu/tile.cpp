// Compiled once for each instruction set. Scores: a vector holds neighbouring key positions, so that each of its lanes
// is one whole dot product in the reference tree. Values: a vector holds neighbouring components.
#include "tile.h"

#include "tessera/sdk/kv.h"
#include "tessera/sdk/numerics.h"
#include "tessera/sdk/simd.h"

namespace tessera_exact::TESSERA_ISA {
namespace {

namespace sdk = tessera::sdk;
using sdk::TESSERA_ISA::Strip;
using sdk::TESSERA_ISA::Vec;

constexpr std::int32_t kSegment = sdk::kAttentionSegment;
constexpr int kTogether = Vec::kWidth == 16 ? 4 : 2;  // pairs whose partial sums fit the registers
constexpr int kChunk = 32;                            // components of V at a time
constexpr int kChunkVectors = kChunk / Vec::kWidth;
constexpr int kValuePairs = Vec::kWidth == 16 ? 6 : 2;

/// What the functions below know of a tile.
struct Work {
  const sdk::AttentionArgs& args;
  const sdk::AttentionShape& shape;
  const Tiling& tiling;
  const TileTask& task;
  const TileScratch& scratch;
  sdk::Slice slice;
  const std::int32_t* pages;
  std::int32_t group;
  std::int32_t pairs;    // row-major, heads within
  std::int32_t longest;  // positions that the last row sees

  std::int32_t length(std::int32_t pair) const { return slice.first_position + task.row + pair / group + 1; }
  std::int32_t packed_row(std::int32_t pair) const { return slice.first_row + task.row + pair / group; }
  std::int32_t head(std::int32_t pair) const { return task.kv_head * group + pair % group; }
  /// K or V of a position.
  const float* at(const void* pool, const float* own, std::int32_t position) const {
    const std::int32_t own_row = position - slice.first_position;
    if (own != nullptr && own_row >= 0)
      return own + (static_cast<std::int64_t>(slice.first_row + own_row) * shape.num_kv_heads + task.kv_head) *
                       shape.head_dim;
    return static_cast<const float*>(pool) +
           args.kv.offset(pages[position / sdk::kPageSize], args.layer, position % sdk::kPageSize, task.kv_head);
  }
};

Work work_of(const sdk::AttentionArgs& args, const sdk::AttentionShape& shape, const Tiling& tiling,
             const TileTask& task, const TileScratch& scratch) {
  const sdk::Slice& slice = args.rows.slices[task.slice];
  const std::int32_t left = slice.num_rows - task.row, rows = left < tiling.rows ? left : tiling.rows;
  const std::int32_t group = shape.num_q_heads / shape.num_kv_heads;
  Work work{args,
            shape,
            tiling,
            task,
            scratch,
            slice,
            args.rows.pages + slice.first_page,
            group,
            rows * group,
            slice.first_position + task.row + rows};
  if (tiling.cache) {
    for (std::int32_t i = 0; i * sdk::kPageSize < work.longest; ++i) scratch.table[i] = work.pages[i];
    work.pages = scratch.table;
  }
  for (std::int32_t pair = 0; pair < work.pairs; ++pair) {
    const float* q = args.q.f32(work.packed_row(pair)) + work.head(pair) * shape.head_dim;
    for (std::int32_t d = 0; d < shape.head_dim; ++d) scratch.queries[pair * shape.head_dim + d] = q[d];
  }
  return work;
}

/// panel[d][i] = K of position begin + i; zeros past `count`. In squares, so that both sides stay in the cache.
void stage_keys(const Work& work, std::int32_t begin, std::int32_t count) {
  constexpr std::int32_t kSquare = 16;
  const std::int32_t keys = work.tiling.keys, dims = work.shape.head_dim;
  for (std::int32_t first = 0; first < (count + kSquare - 1) / kSquare * kSquare; first += kSquare) {
    const float* rows[kSquare];
    const std::int32_t valid = count - first < kSquare ? count - first : kSquare;
    for (std::int32_t i = 0; i < kSquare; ++i)
      rows[i] = work.at(work.args.kv.k, work.tiling.own_k, begin + first + (i < valid ? i : 0));
    for (std::int32_t d = 0; d < dims; ++d) {
      float* target = work.scratch.panel + static_cast<std::int64_t>(d) * keys + first;
      for (std::int32_t i = 0; i < kSquare; ++i) target[i] = rows[i][d];
    }
  }
}

/// One vector for each of `kPairs` pairs, as members, so that they stay in registers.
template <int kPairs>
struct Each {
  Vec head;
  Each<kPairs - 1> tail;
  TESSERA_INLINE static Each mul(const float* q, std::int64_t stride, Vec k) {
    return {Vec::mul(Vec::broadcast(*q), k), Each<kPairs - 1>::mul(q + stride, stride, k)};
  }
  TESSERA_INLINE static Each fma(const float* q, std::int64_t stride, Vec k, const Each& sum) {
    return {Vec::fma(Vec::broadcast(*q), k, sum.head), Each<kPairs - 1>::fma(q + stride, stride, k, sum.tail)};
  }
  TESSERA_INLINE static Each add(const Each& a, const Each& b) {
    return {Vec::add(a.head, b.head), Each<kPairs - 1>::add(a.tail, b.tail)};
  }
  TESSERA_INLINE void store_scaled(Vec scale, float* scores, std::int64_t stride) const {
    Vec::mul(head, scale).store(scores), tail.store_scaled(scale, scores + stride, stride);
  }
};
template <>
struct Each<0> {
  TESSERA_INLINE static Each mul(const float*, std::int64_t, Vec) { return {}; }
  TESSERA_INLINE static Each fma(const float*, std::int64_t, Vec, const Each&) { return {}; }
  TESSERA_INLINE static Each add(const Each&, const Each&) { return {}; }
  TESSERA_INLINE void store_scaled(Vec, float*, std::int64_t) const {}
};

/// The subtree of lanes kLane, kLane + kStep, ... of the reference's 32. kDims = head_dim, or 0: known at run time
/// only.
template <int kPairs, int kDims, int kLane, int kStep>
TESSERA_INLINE Each<kPairs> subtree(const float* q, std::int64_t q_stride, const float* panel, std::int64_t keys) {
  if constexpr (kStep == sdk::kLanes) {
    const std::int64_t dims = kDims > 0 ? kDims : q_stride;
    Each<kPairs> sum = Each<kPairs>::mul(q + kLane, q_stride, Vec::load(panel + kLane * keys));
    for (std::int64_t d = kLane + sdk::kLanes; d < dims; d += sdk::kLanes)
      sum = Each<kPairs>::fma(q + d, q_stride, Vec::load(panel + d * keys), sum);
    return sum;
  } else {
    return Each<kPairs>::add(subtree<kPairs, kDims, kLane, kStep * 2>(q, q_stride, panel, keys),
                             subtree<kPairs, kDims, kLane + kStep, kStep * 2>(q, q_stride, panel, keys));
  }
}

/// scores[pair][0 .. count) of `kPairs` pairs from `pair` on against the staged keys.
template <int kPairs, int kDims>
[[gnu::noinline]] void score_pairs(const Work& work, std::int32_t pair, std::int32_t count, float* scores) {
  const std::int64_t dims = work.shape.head_dim, keys = work.tiling.keys;
  const Vec scale = Vec::broadcast(work.shape.scale);
  const float* q = work.scratch.queries + pair * dims;
  for (std::int32_t i = 0; i < count; i += Vec::kWidth)
    subtree<kPairs, kDims, 0, 1>(q, dims, work.scratch.panel + i, keys)
        .store_scaled(scale, scores + pair * work.scratch.stride + i, work.scratch.stride);
}

template <int kDims>
void score_all(const Work& work, std::int32_t count, float* scores) {
  std::int32_t pair = 0;
  for (; pair + kTogether <= work.pairs; pair += kTogether) score_pairs<kTogether, kDims>(work, pair, count, scores);
  for (; pair < work.pairs; ++pair) score_pairs<1, kDims>(work, pair, count, scores);
}

/// Stages positions [begin, begin + count) and writes their scores to scores[pair][0 ..), and to the caller if he
/// asked.
void score_tile(const Work& work, std::int32_t begin, std::int32_t count, float* scores) {
  stage_keys(work, begin, count);
  switch (work.shape.head_dim) {
    case 32: score_all<32>(work, count, scores); break;
    case 64: score_all<64>(work, count, scores); break;
    case 128: score_all<128>(work, count, scores); break;
    default: score_all<0>(work, count, scores); break;
  }
  if (work.args.scores == nullptr) return;
  for (std::int32_t pair = 0; pair < work.pairs; ++pair) {
    float* emitted = work.args.scores +
                     (static_cast<std::int64_t>(work.packed_row(pair)) * work.shape.num_q_heads + work.head(pair)) *
                         work.args.scores_stride;
    for (std::int32_t i = 0; i < count && begin + i < work.length(pair); ++i)
      emitted[begin + i] = scores[pair * work.scratch.stride + i];
  }
}

float largest_of(const float* scores, std::int32_t count, float largest) {
  float lanes[sdk::kLanes];
  for (float& lane : lanes) lane = largest;
  std::int32_t i = 0;
  for (; i + sdk::kLanes <= count; i += sdk::kLanes)
    for (int lane = 0; lane < sdk::kLanes; ++lane)
      lanes[lane] = scores[i + lane] > lanes[lane] ? scores[i + lane] : lanes[lane];
  for (; i < count; ++i) lanes[0] = scores[i] > lanes[0] ? scores[i] : lanes[0];
  for (const float lane : lanes) largest = lane > largest ? lane : largest;
  return largest;
}

/// Scores of a segment become weights in place, +0 past `count`; returns their sum in the reference's order.
float weigh(float* scores, std::int32_t count, float largest) {
  float lanes[kSegment];
  for (std::int32_t i = count; i < kSegment; ++i) scores[i] = -__builtin_inff();
  for (std::int32_t i = 0; i < kSegment; ++i) lanes[i] = sdk::exp_f32(scores[i] - largest);
  for (std::int32_t i = count; i < kSegment; ++i) lanes[i] = 0.0f;
  for (std::int32_t i = 0; i < kSegment; ++i) scores[i] = lanes[i];
  return sdk::fold_256(lanes);
}

/// values[pair][d] chains weight * V over `count` positions from `begin` on, continuing from what is there.
/// `weights` is at the first pair's weight of `begin`.
template <int kPairs>
[[gnu::noinline]] void chain_values(const Work& work, std::int32_t begin, std::int32_t count, const float* weights,
                                    float* values) {
  const std::int64_t dims = work.shape.head_dim, stride = work.scratch.stride;
  for (std::int32_t chunk = 0; chunk < dims; chunk += kChunk) {
    Strip<kChunkVectors> sums[kPairs];
    for (int pair = 0; pair < kPairs; ++pair) sums[pair].load(values + pair * dims + chunk);
    for (std::int32_t i = 0; i < count; ++i) {
      Strip<kChunkVectors> v;
      v.load(work.at(work.args.kv.v, work.tiling.own_v, begin + i) + chunk);
#pragma GCC unroll 8
      for (int pair = 0; pair < kPairs; ++pair) sums[pair].fma(Vec::broadcast(weights[pair * stride + i]), v);
    }
    for (int pair = 0; pair < kPairs; ++pair) sums[pair].store(values + pair * dims + chunk);
  }
}

/// Adds positions [begin, begin + count) to every pair that sees them: together where all do, else one by one.
void add_values(const Work& work, std::int32_t begin, std::int32_t count, const float* weights, float* values) {
  const std::int64_t dims = work.shape.head_dim, stride = work.scratch.stride;
  const std::int32_t common_end = work.length(0) - begin;
  const std::int32_t common = common_end < 0 ? 0 : (common_end < count ? common_end : count);
  std::int32_t pair = 0;
  for (; pair + kValuePairs <= work.pairs; pair += kValuePairs)
    chain_values<kValuePairs>(work, begin, common, weights + pair * stride, values + pair * dims);
  for (; pair < work.pairs; ++pair) chain_values<1>(work, begin, common, weights + pair * stride, values + pair * dims);
  for (pair = 0; pair < work.pairs; ++pair) {
    const std::int32_t end = work.length(pair) - begin, own = (end < count ? end : count) - common;
    if (own > 0) chain_values<1>(work, begin + common, own, weights + pair * stride + common, values + pair * dims);
  }
}

void exact(const sdk::AttentionArgs& args, const sdk::AttentionShape& shape, const Tiling& tiling, const TileTask& task,
           const TileScratch& scratch) {
  const Work work = work_of(args, shape, tiling, task, scratch);
  const std::int64_t dims = shape.head_dim;
  for (std::int32_t begin = 0; begin < work.longest; begin += tiling.keys) {
    const std::int32_t left = work.longest - begin;
    score_tile(work, begin, left < tiling.keys ? left : tiling.keys, scratch.scores + begin);
  }
  float largest[kMostPairs], totals[kMostPairs];
  for (std::int32_t pair = 0; pair < work.pairs; ++pair)
    largest[pair] = largest_of(scratch.scores + pair * scratch.stride, work.length(pair), -__builtin_inff());
  for (std::int32_t begin = 0; begin < work.longest; begin += kSegment) {
    for (std::int32_t pair = 0; pair < work.pairs; ++pair) {
      const std::int32_t left = work.length(pair) - begin;
      if (left <= 0) continue;
      const float sum =
          weigh(scratch.scores + pair * scratch.stride + begin, left < kSegment ? left : kSegment, largest[pair]);
      totals[pair] = begin == 0 ? sum : totals[pair] + sum;
    }
    for (std::int64_t i = 0; i < work.pairs * dims; ++i) scratch.values[i] = 0.0f;
    const std::int32_t end = work.longest < begin + kSegment ? work.longest : begin + kSegment;
    for (std::int32_t at = begin; at < end; at += tiling.keys)
      add_values(work, at, end - at < tiling.keys ? end - at : tiling.keys, scratch.scores + at, scratch.values);
    for (std::int32_t pair = 0; pair < work.pairs; ++pair) {
      if (work.length(pair) <= begin) continue;
      float* out = args.out.f32(work.packed_row(pair)) + work.head(pair) * dims;
      for (std::int64_t d = 0; d < dims; ++d)
        out[d] = begin == 0 ? scratch.values[pair * dims + d] : out[d] + scratch.values[pair * dims + d];
    }
  }
  for (std::int32_t pair = 0; pair < work.pairs; ++pair) {
    float* out = args.out.f32(work.packed_row(pair)) + work.head(pair) * dims;
    const float inverse = 1.0f / totals[pair];
    for (std::int64_t d = 0; d < dims; ++d) out[d] = out[d] * inverse;
  }
}

/// Online softmax: a running maximum, everything so far rescaled when it grows. Not the reference's order.
void online(const sdk::AttentionArgs& args, const sdk::AttentionShape& shape, const Tiling& tiling,
            const TileTask& task, const TileScratch& scratch) {
  const Work work = work_of(args, shape, tiling, task, scratch);
  const std::int64_t dims = shape.head_dim;
  float largest[kMostPairs], totals[kMostPairs];
  for (std::int32_t pair = 0; pair < work.pairs; ++pair) largest[pair] = -__builtin_inff(), totals[pair] = 0.0f;
  for (std::int64_t i = 0; i < work.pairs * dims; ++i) scratch.running[i] = 0.0f;
  for (std::int32_t begin = 0; begin < work.longest; begin += tiling.keys) {
    const std::int32_t all = work.longest - begin, count = all < tiling.keys ? all : tiling.keys;
    score_tile(work, begin, count, scratch.scores);
    for (std::int64_t i = 0; i < work.pairs * dims; ++i) scratch.values[i] = 0.0f;
    float shrink[kMostPairs];
    for (std::int32_t pair = 0; pair < work.pairs; ++pair) {
      const std::int32_t left = work.length(pair) - begin, own = left < count ? left : count;
      shrink[pair] = 1.0f;
      if (own <= 0) continue;
      float* weights = scratch.scores + pair * scratch.stride;
      const float grown = largest_of(weights, own, largest[pair]);
      shrink[pair] = sdk::exp_f32(largest[pair] - grown);
      float sum = 0.0f;
      for (std::int32_t i = 0; i < own; ++i) sum += weights[i] = sdk::exp_f32(weights[i] - grown);
      totals[pair] = sdk::fma_f32(totals[pair], shrink[pair], sum);
      largest[pair] = grown;
    }
    add_values(work, begin, count, scratch.scores, scratch.values);
    for (std::int32_t pair = 0; pair < work.pairs; ++pair)
      for (std::int64_t i = pair * dims; i < (pair + 1) * dims; ++i)
        scratch.running[i] = sdk::fma_f32(scratch.running[i], shrink[pair], scratch.values[i]);
  }
  for (std::int32_t pair = 0; pair < work.pairs; ++pair) {
    float* out = args.out.f32(work.packed_row(pair)) + work.head(pair) * dims;
    for (std::int64_t d = 0; d < dims; ++d) out[d] = scratch.running[pair * dims + d] / totals[pair];
  }
}

}  // namespace

const TileTable kTiles{exact, online};

}  // namespace tessera_exact::TESSERA_ISA
