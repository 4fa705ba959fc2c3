// Many rows: a block owns a tile of rows by outputs, a thread a grid of chains in registers. Tiles of x and of the
// weight pass through shared memory in steps of 16 inputs, copied two steps ahead.
#include <type_traits>

#include "linear.cuh"

namespace tessera_cuda {
namespace {

constexpr int kStep = kInputsPad;  // k positions of one stage
constexpr int kPitch = kStep + 4;  // of x in shared memory, so that neighbouring rows lie in different banks
constexpr int kStages = 3;

/// A thread owns rows i * (Rows / ThreadRows) and outputs j * (Outputs / ThreadOutputs) from its own first ones on.
/// It takes `Wide` inputs (float2 or float4) of each at a time.
template <int TileRows, int TileOutputs, int OfThreadRows, int OfThreadOutputs, class OfWide>
struct Tile {
  using Wide = OfWide;
  static constexpr int kWide = sizeof(Wide) / sizeof(float);
  static constexpr int kRows = TileRows, kOutputs = TileOutputs;
  static constexpr int kThreadRows = OfThreadRows, kThreadOutputs = OfThreadOutputs;
  static constexpr int kRowGroups = kRows / kThreadRows, kOutputGroups = kOutputs / kThreadOutputs;
  static constexpr int kThreads = kRowGroups * kOutputGroups;
};
using LargeTile = Tile<128, 128, 8, 8, float2>;  // float4 would cost more registers than two blocks leave each other
using SmallTile = Tile<64, 64, 8, 4, float4>;    // the only one that may be split by segments

template <class Weight, class T>
struct Stage {
  float x[T::kRows][kPitch];
  alignas(16) uint4 weight[kStep / kChunk<Weight>][T::kOutputs];
};

/// Copies one stage after the other, in steps of k. A thread copies the same places of each.
template <class Weight, class T>
struct Loader {
  static constexpr int kQuads = kStep / 4, kChunks = kStep / kChunk<Weight>;
  static constexpr int kRowStep = T::kThreads / kQuads, kChunkStep = T::kThreads / T::kOutputs;
  static_assert(T::kRows % kRowStep == 0 && kChunks % kChunkStep == 0);

  const float* x;       // of this thread's first row
  const uint4* weight;  // of this thread's output and first chunk
  int row, k;
  bool output_there;

  __device__ __forceinline__ Loader(const LinearArgs& a, int begin) {
    row = blockIdx.x * T::kRows + threadIdx.x / kQuads;
    k = begin + threadIdx.x % kQuads * 4;
    x = a.x + row * a.x_stride + k;
    const int output = blockIdx.y * T::kOutputs + threadIdx.x % T::kOutputs;
    output_there = output < a.outputs;
    const int first_chunk = begin / kChunk<Weight> + threadIdx.x / T::kOutputs;
    const std::int64_t panel = static_cast<std::int64_t>(output / kPanel) * (a.padded / kChunk<Weight>);
    weight = output_there ? a.weight + (panel + first_chunk) * kPanel + output % kPanel : a.weight;
  }

  __device__ __forceinline__ void fill(Stage<Weight, T>& stage, const LinearArgs& a) {
    const int inputs = min(max(a.inputs - k, 0), 4);
#pragma unroll
    for (int i = 0; i < T::kRows; i += kRowStep) {
      const int valid = row + i < a.rows ? inputs : 0;
      float* to = &stage.x[threadIdx.x / kQuads + i][threadIdx.x % kQuads * 4];
      copy_16(to, valid > 0 ? x + i * a.x_stride : a.x, valid * 4);
    }
#pragma unroll
    for (int i = 0; i < kChunks; i += kChunkStep)
      copy_16(&stage.weight[threadIdx.x / T::kOutputs + i][threadIdx.x % T::kOutputs],
              output_there ? weight + i * kPanel : a.weight, output_there ? 16 : 0);
    k += kStep;
    x += kStep;
    weight += kChunks * kPanel;
  }
};

/// Neighbouring inputs of one output, from `k` of the stage on.
__device__ __forceinline__ void widen(const float* from, float2& to) { to = *reinterpret_cast<const float2*>(from); }
__device__ __forceinline__ void widen(const float* from, float4& to) { to = *reinterpret_cast<const float4*>(from); }
__device__ __forceinline__ void widen(const std::uint16_t* from, float2& to) {
  const auto pair = *reinterpret_cast<const std::uint32_t*>(from);
  to = {low_bf16(pair), high_bf16(pair)};
}
__device__ __forceinline__ void widen(const std::uint16_t* from, float4& to) {
  const auto pairs = *reinterpret_cast<const uint2*>(from);
  to = {low_bf16(pairs.x), high_bf16(pairs.x), low_bf16(pairs.y), high_bf16(pairs.y)};
}

/// Continues all chains of a thread by the stage's inputs.
template <class Weight, class T>
__device__ __forceinline__ void advance(const Stage<Weight, T>& stage, int row, int output,
                                        float (&chain)[T::kThreadRows * T::kThreadOutputs]) {
#pragma unroll 1  // unrolled, its loads move up and cost more registers than there are
  for (int k = 0; k < kStep; k += T::kWide) {
    typename T::Wide x[T::kThreadRows];
#pragma unroll
    for (int i = 0; i < T::kThreadRows; ++i)
      x[i] = *reinterpret_cast<const typename T::Wide*>(&stage.x[row + i * T::kRowGroups][k]);
#pragma unroll
    for (int j = 0; j < T::kThreadOutputs; ++j) {
      typename T::Wide w;
      const uint4* chunk = &stage.weight[k / kChunk<Weight>][output + j * T::kOutputGroups];
      widen(reinterpret_cast<const Weight*>(chunk) + k % kChunk<Weight>, w);
#pragma unroll
      for (int i = 0; i < T::kThreadRows; ++i) {
        float& sum = chain[i * T::kThreadOutputs + j];
        sum = advance_chain(sum, x[i], w);
      }
    }
  }
}

/// y = chain, or y + chain after the first segment; then + bias after the last.
template <class T>
__device__ __forceinline__ void add_to_y(const LinearArgs& a, int row, int output, bool first, bool last,
                                         const float (&chain)[T::kThreadRows * T::kThreadOutputs]) {
  const int first_row = blockIdx.x * T::kRows + row, first_output = blockIdx.y * T::kOutputs + output;
  float* y = a.y + first_row * a.y_stride + first_output;
  const float* bias = last && a.bias != nullptr ? a.bias + first_output : nullptr;
#pragma unroll
  for (int i = 0; i < T::kThreadRows; ++i) {
    if (first_row + i * T::kRowGroups >= a.rows) return;
#pragma unroll
    for (int j = 0; j < T::kThreadOutputs; ++j) {
      const int o = j * T::kOutputGroups;
      if (first_output + o >= a.outputs) continue;
      const float sum = chain[i * T::kThreadOutputs + j];
      const float total = first ? sum : __fadd_rn(y[o], sum);
      y[o] = bias == nullptr ? total : __fadd_rn(total, bias[o]);
    }
    y += T::kRowGroups * a.y_stride;
  }
}

template <class Weight, class T, int MinBlocks>
__global__ void __launch_bounds__(T::kThreads, MinBlocks) many_kernel(const LinearArgs a) {
  extern __shared__ uint4 memory[];
  auto* stages = reinterpret_cast<Stage<Weight, T>*>(memory);
  // A warp is 4 row groups by 8 output groups.
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = warp / (T::kOutputGroups / 8) * 4 + lane / 8;
  const int output = warp % (T::kOutputGroups / 8) * 8 + lane % 8;
  const int begin = a.split ? static_cast<int>(blockIdx.z) * kSegment : 0;
  const int end = a.split ? min(begin + kSegment, a.padded) : a.padded;
  Loader<Weight, T> loader(a, begin);
  for (int s = 0; s < kStages - 1; ++s) {
    if (begin + s * kStep < end) loader.fill(stages[s], a);
    commit_copies();
  }
  float chain[T::kThreadRows * T::kThreadOutputs] = {};
  int k = begin, now = 0;
  for (int segment_end = begin + kSegment; k < end; segment_end += kSegment) {
    for (; k < min(segment_end, end); k += kStep) {
      wait_copies<kStages - 2>();
      __syncthreads();  // the stage is there for all, and all are done with the one before it, which is filled next
      if (k + (kStages - 1) * kStep < end) loader.fill(stages[now == 0 ? kStages - 1 : now - 1], a);
      commit_copies();
      advance(stages[now], row, output, chain);
      now = now + 1 == kStages ? 0 : now + 1;
    }
    if (a.split) break;
    add_to_y<T>(a, row, output, segment_end == kSegment, k >= end, chain);
#pragma unroll
    for (float& sum : chain) sum = 0.0f;
  }
  if constexpr (std::is_same_v<T, SmallTile>)
    if (a.split && combine_segments(a, blockIdx.y * gridDim.x + blockIdx.x, blockIdx.z, chain))
      add_to_y<T>(a, row, output, true, true, chain);
}

template <class Weight, class T>
constexpr int kSharedBytes = kStages* static_cast<int>(sizeof(Stage<Weight, T>));

template <class Weight, class T, int MinBlocks>
cudaError_t configure() {
  return cudaFuncSetAttribute(many_kernel<Weight, T, MinBlocks>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              kSharedBytes<Weight, T>);
}

template <class T>
dim3 tiles(const LinearArgs& args) {
  return dim3((args.rows + T::kRows - 1) / T::kRows, (args.outputs + T::kOutputs - 1) / T::kOutputs);
}

template <class Weight>
cudaError_t launch(LinearArgs args, int processors, cudaStream_t stream) {
  constexpr int kTileSums = SmallTile::kRows * SmallTile::kOutputs;
  static_assert(kPartials / kTileSums <= kSplitTiles);
  dim3 grid = tiles<LargeTile>(args);
  if (static_cast<std::int64_t>(grid.x) * grid.y * 4 >= processors * 3) {  // enough large tiles to keep the GPU busy
    many_kernel<Weight, LargeTile, 2><<<grid, LargeTile::kThreads, kSharedBytes<Weight, LargeTile>, stream>>>(args);
    return cudaGetLastError();
  }
  grid = tiles<SmallTile>(args);
  args.split = args.segments > 1 && grid.x * grid.y <= kPartials / kTileSums;
  if (args.split) grid.z = args.segments;
  many_kernel<Weight, SmallTile, 4><<<grid, SmallTile::kThreads, kSharedBytes<Weight, SmallTile>, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace

cudaError_t configure_many() {
  for (const auto function : {configure<float, LargeTile, 2>, configure<float, SmallTile, 4>,
                              configure<std::uint16_t, LargeTile, 2>, configure<std::uint16_t, SmallTile, 4>})
    if (const cudaError_t error = function(); error != cudaSuccess) return error;
  return cudaSuccess;
}

cudaError_t linear_many(LinearArgs args, bool bf16, int processors, cudaStream_t stream) {
  return bf16 ? launch<std::uint16_t>(args, processors, stream) : launch<float>(args, processors, stream);
}

}  // namespace tessera_cuda
