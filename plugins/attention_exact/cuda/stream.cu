// Long histories of few rows: units of up to kStreamPairs (row, head) pairs, whose keys and values are read once and
// are all that costs. Nothing is staged, so that many blocks fit a multiprocessor and keep its memory busy.
//
// Scores: a warp owns 32 positions; lane l holds components l, l + 32, ... as in the reference, and the trees of eight
// keys are folded together, which takes nine shuffles instead of forty. Values: a thread owns one component of all
// pairs and reads the next page's values while it adds this one's.
#include "segment.cuh"

namespace tessera_exact {
namespace {

constexpr int kWarps = kSegment / 32;
constexpr int kBatch = 8;  // keys that are folded together
constexpr int kPage = sdk::kPageSize;

template <int kDim_, int kPairs_>
struct Few {
  static constexpr int kDim = kDim_;
  static constexpr int kPairs = kPairs_;
  static constexpr int kParts = kDim / 32;  // components of a lane
  static constexpr int kThreads = kDim;     // of a block of the value kernel
  static constexpr int kWarps = kThreads / 32;
};

/// Where the pool has position `key` of the segment: the layer's K or V of the unit's head.
__device__ inline const float* row_of(const SegmentArgs& args, const Work& work, const float* pool, int dim, int key) {
  const std::int64_t page = __ldg(&args.pages[work.slice.first_page + (work.begin + key) / kPage]);
  return pool + page * args.page_stride + (key % kPage * args.kv_heads + work.unit.kv_head) * dim;
}

template <class S>
__device__ inline void load_queries(const SegmentArgs& args, const Work& work, float (&queries)[S::kPairs][S::kParts]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int pair = 0; pair < S::kPairs; ++pair) {
    if (pair >= work.pairs) break;
    const float* source = args.q + work.packed_row(pair) * args.q_stride + work.head(pair) * S::kDim + lane;
#pragma unroll
    for (int part = 0; part < S::kParts; ++part) queries[pair][part] = source[32 * part];
  }
}

/// Positions of the segment that the row of each pair sees.
template <class S>
__device__ inline void count_seen(const Work& work, int (&seen)[S::kPairs]) {
#pragma unroll
  for (int pair = 0; pair < S::kPairs; ++pair) seen[pair] = work.visible(pair);
}

/// Scores of kBatch keys of one page from `first` on, with the largest so far. Keys past the unit's last are read as
/// that one.
template <class S>
__device__ inline void score_batch(const SegmentArgs& args, const Work& work, int first, float* region,
                                   const float (&queries)[S::kPairs][S::kParts], const int (&seen)[S::kPairs],
                                   float (&largest)[S::kPairs]) {
  const int lane = threadIdx.x % 32, width = args.kv_heads * S::kDim, last = work.keys - 1 - first;
  const float* source = row_of(args, work, args.k, S::kDim, first) + lane;
  float keys[kBatch][S::kParts];
#pragma unroll
  for (int i = 0; i < kBatch; ++i)
#pragma unroll
    for (int part = 0; part < S::kParts; ++part) keys[i][part] = __ldg(source + min(i, last) * width + 32 * part);
  const int key = first + sdk::folded_sum();
#pragma unroll
  for (int pair = 0; pair < S::kPairs; ++pair) {
    if (pair >= work.pairs) break;
    float parts[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      parts[i] = __fmul_rn(queries[pair][0], keys[i][0]);
#pragma unroll
      for (int part = 1; part < S::kParts; ++part) parts[i] = __fmaf_rn(queries[pair][part], keys[i][part], parts[i]);
    }
    const float score = __fmul_rn(sdk::warp_fold_8x32(parts), args.scale);
    if (key >= seen[pair]) continue;
    largest[pair] = fmaxf(largest[pair], score);
    if (lane % 4 != 0) continue;
    region[pair * kSegment + key] = score;
    if (args.emitted != nullptr)
      args.emitted[(static_cast<std::int64_t>(work.packed_row(pair)) * args.q_heads + work.head(pair)) *
                       args.emitted_stride +
                   work.begin + key] = score;
  }
}

/// Scores of one unit, and the largest of each pair.
template <class S>
__global__ void __launch_bounds__(32 * kWarps, S::kPairs <= 4 ? 3 : 2)
    stream_score_kernel(const SegmentArgs args, std::int32_t first_unit) {
  __shared__ float block_largest[kWarps][S::kPairs];
  allow_next_kernel();
  const Unit unit = find_unit(args, first_unit + static_cast<std::int32_t>(blockIdx.x));
  if (unit.slice < 0) return;
  const Work work = work_of(args, unit);
  const int warp = threadIdx.x / 32;
  float* region = args.regions + static_cast<std::int64_t>(blockIdx.x) * S::kPairs * kSegment;
  float queries[S::kPairs][S::kParts], largest[S::kPairs];
  int seen[S::kPairs];
  load_queries<S>(args, work, queries);
  count_seen<S>(work, seen);
#pragma unroll
  for (float& value : largest) value = -INFINITY;
#pragma unroll
  for (int first = 0; first < 32; first += kBatch)
    if (warp * 32 + first < work.keys) score_batch<S>(args, work, warp * 32 + first, region, queries, seen, largest);
#pragma unroll
  for (int pair = 0; pair < S::kPairs; ++pair) {
    for (int width = 16; width >= 4; width /= 2)
      largest[pair] = fmaxf(largest[pair], __shfl_xor_sync(sdk::kWholeWarp, largest[pair], width));
    if (threadIdx.x % 32 == 0) block_largest[warp][pair] = largest[pair];
  }
  __syncthreads();
  if (threadIdx.x >= S::kPairs) return;
  float all = -INFINITY;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) all = fmaxf(all, block_largest[i][threadIdx.x]);
  args.unit_largest[static_cast<std::int64_t>(blockIdx.x) * S::kPairs + threadIdx.x] = all;
}

/// What the threads of a block of the value kernel share.
template <class S>
struct Shared {
  float weights[S::kPairs][kSegment];
  float partial[kTrees][S::kPairs];
  float largest[S::kPairs];
  bool last;
};

/// The largest score of each pair over all segments of the tile; `index` is this unit's.
template <class S>
__device__ inline void find_largest(const SegmentArgs& args, const Work& work, std::int32_t index, Shared<S>& shared) {
  const float* units = args.unit_largest + static_cast<std::int64_t>(index - work.unit.segment) * S::kPairs;
  for (int pair = threadIdx.x / 32; pair < work.pairs; pair += S::kWarps) {
    float largest = -INFINITY;
    for (int segment = threadIdx.x % 32; segment < work.unit.segments; segment += 32)
      largest = fmaxf(largest, __ldcg(&units[segment * S::kPairs + pair]));
    for (int width = 16; width > 0; width /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(sdk::kWholeWarp, largest, width));
    if (threadIdx.x % 32 == 0) shared.largest[pair] = largest;
  }
  __syncthreads();
}

/// The weights of the unit's positions, and their sums in the tree of docs/numerics.md.
template <class S>
__device__ inline void weigh_unit(const SegmentArgs& args, const Work& work, std::int32_t index, const float* region,
                                  const int (&seen)[S::kPairs], Shared<S>& shared) {
  const int lane = threadIdx.x % 32;
  for (int tree = threadIdx.x / 32; tree < kTrees; tree += S::kWarps)
#pragma unroll
    for (int pair = 0; pair < S::kPairs; ++pair) {
      if (pair >= work.pairs) break;
      const int key = tree * 32 + lane;
      float weight = 0.0f;
      if (key < seen[pair])
        weight = sdk::exp_f32(__fsub_rn(__ldcg(&region[pair * kSegment + key]), shared.largest[pair]));
      shared.weights[pair][key] = weight;
      const float sum = sdk::warp_fold_32(weight);
      if (lane == 0) shared.partial[tree][pair] = sum;
    }
  __syncthreads();
  if (threadIdx.x >= work.pairs) return;
  float sums[kTrees];
#pragma unroll
  for (int tree = 0; tree < kTrees; ++tree) sums[tree] = shared.partial[tree][threadIdx.x];
  fold<kTrees / 2>(sums);
  args.unit_sums[static_cast<std::int64_t>(index) * S::kPairs + threadIdx.x] = sums[0];
}

/// This thread's component of the values of one page of the segment.
template <class S>
__device__ inline void fetch_values(const SegmentArgs& args, const Work& work, int first, float (&values)[kPage]) {
  if (first >= work.keys) return;
  const float* source = row_of(args, work, args.v, S::kDim, first) + threadIdx.x;
  const int width = args.kv_heads * S::kDim, last = work.keys - 1 - first;
#pragma unroll
  for (int i = 0; i < kPage; ++i) values[i] = __ldg(source + min(i, last) * width);
}

/// The chain over the values of a whole page.
__device__ inline float add_page(const float* weights, const float (&values)[kPage], float sum) {
#pragma unroll
  for (int i = 0; i < kPage; i += 4) {
    const float4 w = *reinterpret_cast<const float4*>(weights + i);
    sum = __fmaf_rn(w.y, values[i + 1], __fmaf_rn(w.x, values[i], sum));
    sum = __fmaf_rn(w.w, values[i + 3], __fmaf_rn(w.z, values[i + 2], sum));
  }
  return sum;
}

/// The chains of this thread's component over the segment, ascending, to the unit's region.
template <class S>
__device__ inline void sum_unit(const SegmentArgs& args, const Work& work, const int (&seen)[S::kPairs],
                                const Shared<S>& shared, float* region) {
  float sums[S::kPairs] = {}, values[kPage], next[kPage];
  fetch_values<S>(args, work, 0, next);
  for (int first = 0; first < work.keys; first += kPage) {
#pragma unroll
    for (int i = 0; i < kPage; ++i) values[i] = next[i];
    fetch_values<S>(args, work, first + kPage, next);
    const bool whole = first + kPage <= seen[0];  // the first row sees the fewest
#pragma unroll
    for (int pair = 0; pair < S::kPairs; ++pair) {
      if (pair >= work.pairs) break;
      const float* weights = &shared.weights[pair][first];
      if (whole)
        sums[pair] = add_page(weights, values, sums[pair]);
      else
#pragma unroll
        for (int i = 0; i < kPage; ++i)
          if (first + i < seen[pair]) sums[pair] = __fmaf_rn(weights[i], values[i], sums[pair]);
    }
  }
#pragma unroll
  for (int pair = 0; pair < S::kPairs; ++pair)
    if (pair < work.pairs) region[pair * S::kDim + threadIdx.x] = sums[pair];
}

/// Values of one unit; the last block of a tile adds its segments up.
template <class S>
__global__ void __launch_bounds__(S::kThreads) stream_value_kernel(const SegmentArgs args, std::int32_t first_unit) {
  __shared__ alignas(16) Shared<S> shared;
  const auto index = static_cast<std::int32_t>(blockIdx.x);
  const Unit unit = find_unit(args, first_unit + index);
  if (unit.slice < 0) return;
  const Work work = work_of(args, unit);
  float* region = args.regions + static_cast<std::int64_t>(index) * S::kPairs * kSegment;
  wait_for_last_kernel();
  find_largest<S>(args, work, index, shared);
  int seen[S::kPairs];
  count_seen<S>(work, seen);
  weigh_unit<S>(args, work, index, region, seen, shared);
  sum_unit<S>(args, work, seen, shared, region);
  merge<S>(args, work, index, shared.last);
}

template <class S>
sdk::Status launch(const SegmentArgs& args, const StreamRange& range, bool overlap, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(range.blocks);
  stream_score_kernel<S><<<blocks, 32 * kWarps, 0, stream>>>(args, range.first);
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = S::kThreads;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = overlap ? 1 : 0;
  const auto status = sdk::cuda_status(cudaLaunchKernelEx(&config, &stream_value_kernel<S>, args, range.first),
                                       "attention_exact: launching a stream value kernel");
  return status.ok() ? sdk::cuda_status(cudaGetLastError(), "attention_exact: launching a stream kernel") : status;
}

/// Calls body<Few>() for the kernels of a head_dim and up to `pairs` pairs.
template <int kDim, class Body>
sdk::Status with_pairs(std::int32_t pairs, Body&& body) {
  switch (pairs) {
    case 1: return body.template operator()<Few<kDim, 1>>();
    case 2: return body.template operator()<Few<kDim, 2>>();
    case 4: return body.template operator()<Few<kDim, 4>>();
    default: return body.template operator()<Few<kDim, kStreamPairs>>();
  }
}

template <class Body>
sdk::Status with_few(std::int32_t head_dim, std::int32_t pairs, Body&& body) {
  switch (head_dim) {
    case 32: return with_pairs<32>(pairs, body);
    case 64: return with_pairs<64>(pairs, body);
    case 96: return with_pairs<96>(pairs, body);
    default: return with_pairs<128>(pairs, body);
  }
}

}  // namespace

sdk::Status launch_stream(const SegmentArgs& args, const StreamRange& range, std::int32_t pairs, bool overlap,
                          void* stream) {
  return with_few(args.head_dim, pairs,
                  [&]<class S>() { return launch<S>(args, range, overlap, static_cast<cudaStream_t>(stream)); });
}

void list_stream(std::int32_t head_dim, std::int32_t pairs, sdk::KernelList& list) {
  (void)with_few(head_dim, pairs, [&]<class S>() -> sdk::Status {
    list.add("stream score", reinterpret_cast<const void*>(&stream_score_kernel<S>), 32 * kWarps);
    list.add("stream value", reinterpret_cast<const void*>(&stream_value_kernel<S>), S::kThreads);
    return {};
  });
}

}  // namespace tessera_exact
