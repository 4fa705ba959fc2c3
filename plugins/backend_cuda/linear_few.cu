// Few rows: the weight is read once, as fast as memory gives it. A warp owns one panel of 32 outputs (a lane each) and
// up to 8 rows, so that a weight is widened once for all of them; a ring of asynchronous copies keeps 8 or 16 KiB of it
// under way. The warps of a block share the rows, which wait in shared memory a segment at a time. Blocks of one
// segment each make enough warps of small weights.
#include "linear.cuh"

namespace tessera_cuda {
namespace {

constexpr int kMostWarps = 4;          // of a block: neighbouring panels
constexpr int kBatch = 4;              // chunks of 32 outputs that are asked for together: 2 KiB
constexpr int kFlat = 16, kDeep = 32;  // chunks under way

/// The rows of a block's tile in one segment; two take turns.
template <int Rows>
using Inputs = float[Rows][kSegment];

/// Enqueues the copies of k positions [k, end) of the block's rows, with +0 where the matrix ends.
template <int Rows>
__device__ __forceinline__ void fetch_inputs(Inputs<Rows>& to, const LinearArgs& a, int first_row, int k, int end) {
  const int quads = (end - k) / 4;
  for (int i = threadIdx.x; i < Rows * quads; i += blockDim.x) {
    const int row = i / quads, in = i % quads * 4;
    if (a.x_aligned)
      copy_x_aligned(&to[row][in], a, first_row + row, k + in);
    else
      copy_x_unaligned(&to[row][in], a, first_row + row, k + in);
  }
  commit_copies();
}

__device__ __forceinline__ void widen(const uint4& chunk, float4 (&out)[1]) {
  out[0] = {__uint_as_float(chunk.x), __uint_as_float(chunk.y), __uint_as_float(chunk.z), __uint_as_float(chunk.w)};
}

__device__ __forceinline__ void widen(const uint4& chunk, float4 (&out)[2]) {
  out[0] = {low_bf16(chunk.x), high_bf16(chunk.x), low_bf16(chunk.y), high_bf16(chunk.y)};
  out[1] = {low_bf16(chunk.z), high_bf16(chunk.z), low_bf16(chunk.w), high_bf16(chunk.w)};
}

/// Continues the chains of all rows by one chunk of the weight; `x` are the inputs that it begins at.
template <class Weight, int Rows>
__device__ __forceinline__ void advance(const uint4& chunk, const float* x, float (&chain)[Rows]) {
  constexpr int kQuads = kChunk<Weight> / 4;
  float4 w[kQuads];
  widen(chunk, w);
#pragma unroll
  for (int q = 0; q < kQuads; ++q)
#pragma unroll
    for (int row = 0; row < Rows; ++row)
      chain[row] = advance_chain(chain[row], *reinterpret_cast<const float4*>(x + row * kSegment + q * 4), w[q]);
}

/// The chunks of one panel on their way through shared memory. A lane reads what it copied itself, so that nobody waits
/// for anybody. `Depth` chunks are under way, kBatch of them in a group of copies.
template <class Weight, int Depth>
struct Ring {
  static constexpr int kGroups = Depth / kBatch;
  uint4* slots;         // of this lane, kPanel apart
  const uint4* source;  // of this lane; the next chunk to ask for
  int left;             // chunks not asked for yet
  int turn = 0;         // the group that is used next, and then filled

  /// Always commits, so that groups can be counted.
  __device__ __forceinline__ void fetch(int group) {
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
      if (i < left) copy_16(slots + (group * kBatch + i) * kPanel, source + i * kPanel);
    commit_copies();
    source += kBatch * kPanel;
    left -= kBatch;
  }
  __device__ __forceinline__ void fill() {
    for (int group = 0; group < kGroups; ++group) fetch(group);
  }
  /// Hands out the next group's chunks and asks for others in their place.
  template <class Use>
  __device__ __forceinline__ void next(Use&& use) {
    wait_copies<kGroups - 1>();
    use(slots + turn * kBatch * kPanel);
    fetch(turn);
    turn = turn + 1 == kGroups ? 0 : turn + 1;
  }
};

/// The chains of one segment of `inputs` positions, from 0.
template <class Weight, int Rows, int Depth>
__device__ __forceinline__ void run_segment(Ring<Weight, Depth>& ring, const Inputs<Rows>& x, int inputs,
                                            float (&chain)[Rows]) {
  constexpr int kStep = kChunk<Weight>;
#pragma unroll
  for (float& sum : chain) sum = 0.0f;
  for (int k = 0; k < inputs; k += kBatch * kStep)
    ring.next([&](const uint4* chunks) {
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        if (k + i * kStep < inputs) advance<Weight, Rows>(chunks[i * kPanel], &x[0][k + i * kStep], chain);
    });
}

/// Of a block: the inputs of one segment, or of two that take turns, then a ring for each warp.
template <int Rows, int Depth>
int shared_bytes(bool split, int warps) {
  return static_cast<int>((split ? 1 : 2) * sizeof(Inputs<Rows>) + warps * Depth * kPanel * sizeof(uint4));
}

/// Block (row tile, panels, segment): row tiles of the same panels run side by side and share what the cache holds.
template <class Weight, int Rows, int Depth>
__global__ void __launch_bounds__(32 * kMostWarps, 4) few_kernel(const LinearArgs a) {
  extern __shared__ uint4 memory[];
  auto* inputs = reinterpret_cast<Inputs<Rows>*>(memory);
  auto* rings = reinterpret_cast<uint4*>(inputs + (a.split ? 1 : 2));
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first_row = blockIdx.x * Rows, panel = blockIdx.y * (blockDim.x / 32) + warp;
  const int begin = a.split ? static_cast<int>(blockIdx.z) * kSegment : 0;
  const int end = a.split ? min(begin + kSegment, a.padded) : a.padded;
  const bool used = panel * kPanel < a.outputs;
  fetch_inputs<Rows>(inputs[0], a, first_row, begin, min(begin + kSegment, end));
  Ring<Weight, Depth> ring{
      rings + warp * Depth * kPanel + lane,
      a.weight + (static_cast<std::int64_t>(panel) * a.padded + begin) / kChunk<Weight> * kPanel + lane,
      used ? (end - begin) / kChunk<Weight> : 0};
  ring.fill();
  float chain[Rows], total[Rows] = {};
  for (int k = begin, turn = 0; k < end; k += kSegment, turn ^= 1) {
    const int next = k + kSegment;
    wait_copies<Ring<Weight, Depth>::kGroups>();  // this segment's inputs, which were asked for before the chunks
    __syncthreads();                              // they are there for all, and all are done with the last segment's
    if (next < end) fetch_inputs<Rows>(inputs[turn ^ 1], a, first_row, next, min(next + kSegment, end));
    run_segment<Weight, Rows, Depth>(ring, inputs[turn], min(kSegment, end - k), chain);
#pragma unroll
    for (int row = 0; row < Rows; ++row) total[row] = k == begin ? chain[row] : __fadd_rn(total[row], chain[row]);
  }
  if (a.split && !combine_segments(a, blockIdx.y * gridDim.x + blockIdx.x, blockIdx.z, total)) return;
  const int output = panel * kPanel + lane;
  if (output >= a.outputs) return;
#pragma unroll
  for (int row = 0; row < Rows; ++row)
    if (first_row + row < a.rows)
      a.y[(first_row + row) * a.y_stride + output] =
          a.bias == nullptr ? total[row] : __fadd_rn(total[row], a.bias[output]);
}

/// Small weights are split into blocks of one segment, and blocks made narrower, until the GPU has enough of them. The
/// fewer warps there are, the more each must have under way.
template <class Weight, int Rows>
cudaError_t launch(LinearArgs args, int processors, cudaStream_t stream) {
  const int row_tiles = (args.rows + Rows - 1) / Rows, panels = (args.outputs + kPanel - 1) / kPanel;
  const auto blocks = [&](int warps) { return row_tiles * ((panels + warps - 1) / warps); };
  args.split = args.segments > 1 && static_cast<std::int64_t>(row_tiles) * panels < 8 * processors;
  int warps = kMostWarps;
  while (warps > 1 && blocks(warps) * (args.split ? args.segments : 1) < 2 * processors) warps /= 2;
  if (blocks(warps) > kSplitTiles || blocks(warps) * 32 * warps * Rows > kPartials) args.split = false;
  const dim3 grid(row_tiles, blocks(warps) / row_tiles, args.split ? args.segments : 1);
  const bool deep = static_cast<std::int64_t>(blocks(warps)) * grid.z * warps <= 6 * processors;
  if (deep)
    few_kernel<Weight, Rows, kDeep><<<grid, 32 * warps, shared_bytes<Rows, kDeep>(args.split, warps), stream>>>(args);
  else
    few_kernel<Weight, Rows, kFlat><<<grid, 32 * warps, shared_bytes<Rows, kFlat>(args.split, warps), stream>>>(args);
  return cudaGetLastError();
}

template <class Weight>
cudaError_t launch_rows(const LinearArgs& args, int processors, cudaStream_t stream) {
  if (args.rows == 1) return launch<Weight, 1>(args, processors, stream);
  if (args.rows == 2) return launch<Weight, 2>(args, processors, stream);
  if (args.rows <= 4) return launch<Weight, 4>(args, processors, stream);
  return launch<Weight, 8>(args, processors, stream);
}

template <class Weight, int Rows, int Depth>
cudaError_t allow_memory() {
  return cudaFuncSetAttribute(few_kernel<Weight, Rows, Depth>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              shared_bytes<Rows, Depth>(false, kMostWarps));
}

template <class Weight, int... Rows>
cudaError_t configure() {
  for (const auto function : {allow_memory<Weight, Rows, kFlat>..., allow_memory<Weight, Rows, kDeep>...})
    if (const cudaError_t error = function(); error != cudaSuccess) return error;
  return cudaSuccess;
}

}  // namespace

cudaError_t configure_few() {
  const cudaError_t error = configure<float, 1, 2, 4, 8>();
  return error == cudaSuccess ? configure<std::uint16_t, 1, 2, 4, 8>() : error;
}

cudaError_t linear_few(LinearArgs args, bool bf16, int processors, cudaStream_t stream) {
  return bf16 ? launch_rows<std::uint16_t>(args, processors, stream) : launch_rows<float>(args, processors, stream);
}

}  // namespace tessera_cuda
