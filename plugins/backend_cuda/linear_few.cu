// Few rows: the weight is read once, as fast as memory gives it. A block owns one panel of 32 outputs (a lane each) and
// up to 16 rows (a warp takes every fourth); a ring of asynchronous copies keeps up to 56 KiB of it under way.
#include "linear.cuh"

namespace tessera_cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kStageInputs = 64;  // k positions of one stage; divides a segment
constexpr int kStages = 8;

template <class Weight, int WarpRows>
struct Stage {
  uint4 weight[kStageInputs / kChunk<Weight>][kPanel];
  alignas(16) float x[kWarps * WarpRows][kStageInputs];
};

/// Enqueues the copies of k positions [k, k + kStageInputs), as far as they are below `end`.
template <class Weight, int WarpRows>
__device__ __forceinline__ void fill(Stage<Weight, WarpRows>& stage, const LinearArgs& a, int first_row, int k,
                                     int end) {
  constexpr int kChunks = kStageInputs / kChunk<Weight>;
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * a.padded + k) / kChunk<Weight> * kPanel;
  const int count = min(kChunks, (end - k) / kChunk<Weight>) * kPanel;
  for (int i = threadIdx.x; i < count; i += kThreads) copy_16(&stage.weight[0][0] + i, a.weight + first + i);
  constexpr int kQuads = kStageInputs / 4;
  const int rows = min(kWarps * WarpRows, a.rows - first_row);
  for (int i = threadIdx.x; i < rows * kQuads; i += kThreads) {
    const int row = i / kQuads, in = i % kQuads * 4;
    if (a.x_aligned)
      copy_x_aligned(&stage.x[row][in], a, first_row + row, k + in);
    else
      copy_x_unaligned(&stage.x[row][in], a, first_row + row, k + in);
  }
}

__device__ __forceinline__ void widen(const uint4& chunk, float4 (&out)[1]) {
  out[0] = {__uint_as_float(chunk.x), __uint_as_float(chunk.y), __uint_as_float(chunk.z), __uint_as_float(chunk.w)};
}

__device__ __forceinline__ void widen(const uint4& chunk, float4 (&out)[2]) {
  out[0] = {low_bf16(chunk.x), high_bf16(chunk.x), low_bf16(chunk.y), high_bf16(chunk.y)};
  out[1] = {low_bf16(chunk.z), high_bf16(chunk.z), low_bf16(chunk.w), high_bf16(chunk.w)};
}

/// Continues the chains of this warp's rows by 16 positions of the stage, from `k` on.
template <class Weight, int WarpRows>
__device__ __forceinline__ void advance(const Stage<Weight, WarpRows>& stage, int k, float (&chain)[WarpRows]) {
  constexpr int kQuads = kChunk<Weight> / 4;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int c = 0; c < kInputsPad / kChunk<Weight>; ++c) {
    float4 w[kQuads];
    widen(stage.weight[k / kChunk<Weight> + c][lane], w);
#pragma unroll
    for (int q = 0; q < kQuads; ++q)
#pragma unroll
      for (int i = 0; i < WarpRows; ++i) {
        const float* x = &stage.x[warp + i * kWarps][k + c * kChunk<Weight> + q * 4];
        chain[i] = advance_chain(chain[i], *reinterpret_cast<const float4*>(x), w[q]);
      }
  }
}

template <class Weight, int WarpRows>
__global__ void __launch_bounds__(kThreads) few_kernel(const LinearArgs a) {
  extern __shared__ uint4 memory[];
  auto* stages = reinterpret_cast<Stage<Weight, WarpRows>*>(memory);
  const int first_row = blockIdx.y * kWarps * WarpRows;
  const int warp = threadIdx.x / 32;
  const int begin = a.split ? static_cast<int>(blockIdx.z) * kSegment : 0;
  const int end = a.split ? min(begin + kSegment, a.padded) : a.padded;
  for (int s = 0; s < kStages - 1; ++s) {
    const int k = begin + s * kStageInputs;
    if (k < end) fill(stages[s], a, first_row, k, end);
    commit_copies();
  }
  float chain[WarpRows] = {}, total[WarpRows] = {};
  for (int k = begin, step = 0; k < end; k += kStageInputs, ++step) {
    wait_copies<kStages - 2>();
    __syncthreads();  // the stage is there for all, and all are done with the one before it, which is filled next
    const int next = k + (kStages - 1) * kStageInputs;
    if (next < end) fill(stages[(step + kStages - 1) % kStages], a, first_row, next, end);
    commit_copies();
    const int count = min(kStageInputs, end - k);
    if (first_row + warp < a.rows) {
      const auto& stage = stages[step % kStages];
#pragma unroll 2
      for (int i = 0; i < count; i += kInputsPad) advance(stage, i, chain);
    }
    if ((k + count) % kSegment == 0 || k + count == end) {
      const bool first = k + count <= begin + kSegment;
      for (int i = 0; i < WarpRows; ++i) {
        total[i] = first ? chain[i] : __fadd_rn(total[i], chain[i]);
        chain[i] = 0.0f;
      }
    }
  }
  const int tile = blockIdx.y * gridDim.x + blockIdx.x;
  if (a.split && !combine_segments(a, tile, blockIdx.z, total)) return;
  const int output = blockIdx.x * kPanel + threadIdx.x % 32;
  if (output >= a.outputs) return;
  for (int i = 0; i < WarpRows; ++i) {
    const int row = first_row + warp + i * kWarps;
    if (row < a.rows)
      a.y[row * a.y_stride + output] = a.bias == nullptr ? total[i] : __fadd_rn(total[i], a.bias[output]);
  }
}

template <class Weight, int WarpRows>
constexpr int kSharedBytes = kStages* static_cast<int>(sizeof(Stage<Weight, WarpRows>));

template <class Weight, int WarpRows>
cudaError_t configure() {
  return cudaFuncSetAttribute(few_kernel<Weight, WarpRows>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              kSharedBytes<Weight, WarpRows>);
}

template <class Weight, int WarpRows>
cudaError_t launch(LinearArgs args, cudaStream_t stream) {
  constexpr int kRows = kWarps * WarpRows;
  static_assert(kSplitTiles * kThreads * WarpRows <= kPartials);
  const int panels = (args.outputs + kPanel - 1) / kPanel;
  const int row_blocks = (args.rows + kRows - 1) / kRows;
  args.split = args.segments > 1 && static_cast<std::int64_t>(panels) * row_blocks <= kSplitTiles;
  const dim3 grid(panels, row_blocks, args.split ? args.segments : 1);
  few_kernel<Weight, WarpRows><<<grid, kThreads, kSharedBytes<Weight, WarpRows>, stream>>>(args);
  return cudaGetLastError();
}

template <class Weight>
cudaError_t launch_rows(const LinearArgs& args, cudaStream_t stream) {
  if (args.rows <= kWarps) return launch<Weight, 1>(args, stream);
  if (args.rows <= 2 * kWarps) return launch<Weight, 2>(args, stream);
  return launch<Weight, 4>(args, stream);
}

}  // namespace

cudaError_t configure_few() {
  for (const auto function : {configure<float, 1>, configure<float, 2>, configure<float, 4>,
                              configure<std::uint16_t, 1>, configure<std::uint16_t, 2>, configure<std::uint16_t, 4>})
    if (const cudaError_t error = function(); error != cudaSuccess) return error;
  return cudaSuccess;
}

cudaError_t linear_few(LinearArgs args, bool bf16, cudaStream_t stream) {
  return bf16 ? launch_rows<std::uint16_t>(args, stream) : launch_rows<float>(args, stream);
}

}  // namespace tessera_cuda
