// For CUDA plugins only: checked calls, the stream to launch on, and the folds of docs/numerics.md across threads.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>

#include "tessera/sdk/attention.h"
#include "tessera/sdk/device.h"
#include "tessera/sdk/status.h"

namespace tessera::sdk {

/// Ok, or one sentence of the call that failed and CUDA's reason. `what` names the call or what it was for.
/// A failed launch is reported by cudaGetLastError(): wrap that after each launch.
inline Status cuda_status(cudaError_t error, const char* what) noexcept {
  if (error == cudaSuccess) return {};
  Code code = Code::internal;
  if (error == cudaErrorMemoryAllocation) code = Code::resource_exhausted;
  if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver || error == cudaErrorNoKernelImageForDevice)
    code = Code::unsupported;
  char text[Status::kMessageBytes];
  std::snprintf(text, sizeof text, "%s failed: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
  return fail(code, text);
}

/// `count` or up to an eighth more: for sizes of launches that grow with the history, so that their topology lasts for
/// many tokens. What is launched in vain must end by itself.
inline std::int32_t launch_bucket(std::int32_t count) noexcept {
  std::int32_t step = 1;
  while (step * 16 <= count) step *= 2;
  return (count + step - 1) / step * step;
}

/// The stream all work of a step is enqueued on; owned by the backend.
inline cudaStream_t stream_of(const DeviceContext& context) noexcept {
  return static_cast<cudaStream_t>(context.stream);
}

/// What a report needs to know of a kernel on the current device. Zeros where CUDA does not answer.
inline KernelFacts kernel_facts(const char* name, const void* kernel, int threads, std::size_t dynamic_bytes) noexcept {
  cudaFuncAttributes attributes{};
  int blocks = 0, device = 0, most = 1;
  cudaFuncGetAttributes(&attributes, kernel);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, dynamic_bytes);
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&most, cudaDevAttrMaxThreadsPerMultiProcessor, device);
  return {name,
          threads,
          attributes.numRegs,
          static_cast<std::int64_t>(attributes.sharedSizeBytes + dynamic_bytes),
          blocks,
          static_cast<double>(blocks) * threads / most};
}

/// The kernels of a step, for Attention::kernels.
class KernelList {
 public:
  KernelList(KernelFacts* out, std::int32_t capacity) : out_(out), capacity_(capacity) {}
  void add(const char* name, const void* kernel, int threads, std::size_t dynamic_bytes = 0) noexcept {
    if (count_ < capacity_) out_[count_++] = kernel_facts(name, kernel, threads, dynamic_bytes);
  }
  std::int32_t count() const noexcept { return count_; }

 private:
  KernelFacts* out_;
  std::int32_t capacity_, count_ = 0;
};

#if defined(__CUDACC__)

inline constexpr unsigned kWholeWarp = 0xFFFFFFFFu;

/// fold_32 over the lanes of a warp; every lane gets the result. (Addition commutes, so lane i and lane i ^ w agree.)
__device__ __forceinline__ float warp_fold_32(float lane) {
  for (int width = 16; width > 0; width /= 2) lane = __fadd_rn(lane, __shfl_xor_sync(kWholeWarp, lane, width));
  return lane;
}

/// Eight fold_32 at once, in nine shuffles instead of forty: lanes 16 apart meet first, as in fold_32, and each half of
/// the warp goes on with half of the sums. A lane ends with sum number folded_sum(); so do the three beside it.
__device__ __forceinline__ float warp_fold_8x32(const float (&lanes)[8]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto meet = [&](float low, float high, int width) {
    const bool upper = (lane & width) != 0;
    return __fadd_rn(upper ? high : low, __shfl_xor_sync(kWholeWarp, upper ? low : high, width));
  };
  float half[4], quarter[2];
#pragma unroll
  for (int i = 0; i < 4; ++i) half[i] = meet(lanes[i], lanes[i + 4], 16);
#pragma unroll
  for (int i = 0; i < 2; ++i) quarter[i] = meet(half[i], half[i + 2], 8);
  float sum = meet(quarter[0], quarter[1], 4);
  sum = __fadd_rn(sum, __shfl_xor_sync(kWholeWarp, sum, 2));
  return __fadd_rn(sum, __shfl_xor_sync(kWholeWarp, sum, 1));
}
__device__ __forceinline__ int folded_sum() { return static_cast<int>(threadIdx.x) % 32 / 4; }

/// fold_256 over the threads of a block of exactly 256; every thread gets the result.
__device__ __forceinline__ float block_fold_256(float lane) {
  __shared__ float partial[8];
  const float sum = warp_fold_32(lane);
  __syncthreads();  // the last fold may still be read
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  float total = partial[threadIdx.x % 8];
  for (int width = 4; width > 0; width /= 2) total = __fadd_rn(total, __shfl_xor_sync(kWholeWarp, total, width));
  return total;
}

#endif

}  // namespace tessera::sdk
