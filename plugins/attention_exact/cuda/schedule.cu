// The units of a step, written on the device: nothing but the step's metadata crosses from the host.
#include "launch.h"
#include "tessera/sdk/cuda.h"

namespace tessera_exact {

namespace sdk = tessera::sdk;

namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr int kLengths = sdk::kAttentionSegment / 32;  // single tiles are sorted by length / 32, the longest first

__device__ int sum_of_warp(int value) {
  for (int width = 16; width > 0; width /= 2) value += __shfl_xor_sync(0xffffffffu, value, width);
  return value;
}

/// Sum of the lanes before this one.
__device__ int sum_before(int value) {
  const int lane = threadIdx.x % 32;
  int sum = value;
  for (int width = 1; width < 32; width *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, sum, width);
    if (lane >= width) sum += other;
  }
  return sum - value;
}

struct Cursors {
  int singles[kLengths];  // next free place of each length class
  int multiples;          // units of slices before the warp's next one
};

/// Calls body(row, length, segments) for each tile of the slice, one a lane; all lanes call together.
template <class Body>
__device__ void for_each_tile(const sdk::Slice& slice, int tile_rows, Body&& body) {
  const int lane = threadIdx.x % 32;
  for (int base = 0; base * tile_rows < slice.num_rows; base += 32) {
    const int row = (base + lane) * tile_rows;
    const int length = row < slice.num_rows ? tile_length(slice, row, tile_rows) : 0;
    body(row, length, segments_of(length));
  }
}

__device__ int length_class(int length) { return kLengths - 1 - (length - 1) / 32; }

/// One block. `offsets[slice]` becomes the units of multiple tiles in earlier slices.
__global__ __launch_bounds__(kThreads) void schedule_kernel(const SegmentArgs args, std::int32_t singles,
                                                            std::int32_t* offsets, Unit* units) {
  __shared__ Cursors cursors;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x < kLengths) cursors.singles[threadIdx.x] = 0;
  __syncthreads();
  for (int s = warp; s < args.num_slices; s += kWarps) {
    int count = 0;
    for_each_tile(args.slices[s], args.tile_rows, [&](int, int length, int segments) {
      if (segments == 1) atomicAdd(&cursors.singles[length_class(length)], args.kv_heads);
      if (segments > 1) count += segments * args.kv_heads;
    });
    count = sum_of_warp(count);
    if (lane == 0) offsets[s] = count;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    int before = 0;
    for (int& place : cursors.singles) {
      const int count = place;
      place = before;
      before += count;
    }
    before = 0;
    for (int s = 0; s < args.num_slices; ++s) {
      const int count = offsets[s];
      offsets[s] = before;
      before += count;
    }
  }
  __syncthreads();
  for (int s = warp; s < args.num_slices; s += kWarps) {
    int base = singles + offsets[s];
    for_each_tile(args.slices[s], args.tile_rows, [&](int row, int length, int segments) {
      const int count = segments > 1 ? segments * args.kv_heads : 0;
      const int first = base + sum_before(count);
      if (segments == 1) {
        const int place = atomicAdd(&cursors.singles[length_class(length)], args.kv_heads);
        for (int head = 0; head < args.kv_heads; ++head) units[place + head] = {s, row, head, 0, 1};
      }
      for (int i = 0; i < count; ++i) units[first + i] = {s, row, i / segments, i % segments, segments};
      base += sum_of_warp(count);
    });
  }
}

}  // namespace

sdk::Status launch_schedule(const SegmentArgs& args, std::int32_t singles, std::int32_t* offsets, Unit* units,
                            void* stream) {
  schedule_kernel<<<1, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(args, singles, offsets, units);
  return sdk::cuda_status(cudaGetLastError(), "attention_exact: launching the schedule kernel");
}

void list_schedule(sdk::KernelList& list) {
  list.add("schedule", reinterpret_cast<const void*>(&schedule_kernel), kThreads);
}

}  // namespace tessera_exact
