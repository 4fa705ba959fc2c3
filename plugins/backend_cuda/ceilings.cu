#include <algorithm>

#include "ceilings.h"

namespace tessera_cuda {
namespace {

constexpr int kThreads = 256, kBlocks = 8;  // of a multiprocessor: as many threads as it holds
constexpr int kChains = 8;                  // enough to hide the latency of the units
constexpr int kSteps = 16384;
constexpr int kRounds = 5;  // the best counts: a roof is what the device can do, not what it did

__global__ void __launch_bounds__(kThreads) fma_kernel(float* sink, float a, float b) {
  float chain[kChains];
#pragma unroll
  for (int i = 0; i < kChains; ++i) chain[i] = static_cast<float>(threadIdx.x + i);
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int i = 0; i < kChains; ++i) chain[i] = __fmaf_rn(chain[i], a, b);
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kChains; ++i) sum += chain[i];
  if (sum == -1.0f) *sink = sum;  // never, but the compiler does not know
}

__global__ void __launch_bounds__(kThreads) read_kernel(float* sink, const float4* memory, std::size_t count) {
  float sum = 0.0f;
  const std::size_t stride = std::size_t{gridDim.x} * kThreads;
#pragma unroll 4
  for (std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += stride) {
    const float4 value = __ldcs(memory + i);
    sum += value.x + value.y + value.z + value.w;
  }
  if (sum == -1.0f) *sink = sum;
}

/// Seconds of the fastest round.
template <class Launch>
cudaError_t fastest(cudaStream_t stream, Launch&& launch, double* seconds) {
  cudaEvent_t start{}, stop{};
  cudaError_t error = cudaEventCreate(&start);
  if (error == cudaSuccess) error = cudaEventCreate(&stop);
  *seconds = 1e30;
  for (int round = 0; round < kRounds && error == cudaSuccess; ++round) {
    cudaEventRecord(start, stream);
    launch();
    cudaEventRecord(stop, stream);
    error = cudaEventSynchronize(stop);
    float milliseconds = 0;
    if (error == cudaSuccess) error = cudaEventElapsedTime(&milliseconds, start, stop);
    *seconds = std::min(*seconds, milliseconds * 1e-3);
  }
  cudaEventDestroy(start), cudaEventDestroy(stop);
  return error != cudaSuccess ? error : cudaGetLastError();
}

}  // namespace

cudaError_t measure_ceilings(const void* memory, std::size_t bytes, float* sink, int processors, cudaStream_t stream,
                             tessera::sdk::Ceilings* out) {
  const auto blocks = static_cast<unsigned>(processors * kBlocks);
  double seconds = 0;
  cudaError_t error = fastest(
      stream, [&] { fma_kernel<<<blocks, kThreads, 0, stream>>>(sink, 0.5f, 1.0f); }, &seconds);
  if (error != cudaSuccess) return error;
  out->flops = 2.0 * kChains * kSteps * kThreads * blocks / seconds;
  error = fastest(
      stream,
      [&] {
        read_kernel<<<blocks, kThreads, 0, stream>>>(sink, static_cast<const float4*>(memory), bytes / sizeof(float4));
      },
      &seconds);
  out->bytes_per_second = static_cast<double>(bytes) / seconds;
  return error;
}

}  // namespace tessera_cuda
