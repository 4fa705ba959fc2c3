// y = x w^T (+ bias) in the order of docs/numerics.md, "Linear": two kernels, chosen by the row count, with equal bits.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "tessera/sdk/backend.h"
#include "tessera/sdk/numerics.h"

namespace tessera_cuda {

inline constexpr int kPanel = 32;       // outputs packed side by side: one warp
inline constexpr int kInputsPad = 16;   // inputs are padded to a multiple of it
inline constexpr int kChunkBytes = 16;  // neighbouring inputs of one output, as one load reads them
inline constexpr int kSegment = tessera::sdk::kLinearSegment;

/// A weight in device memory: [panel][inputs / chunk][32 outputs][chunk], a chunk being 4 f32 or 8 bf16 along k.
/// Inputs are padded with -0: x = +0 times -0 is -0, the one number that leaves every sum as it is.
struct PackedLinear {
  void* data;
  const float* bias;  // [outputs] or null
  bool bf16;          // else f32
  std::int32_t outputs;
  std::int32_t inputs;

  std::int32_t panels() const { return (outputs + kPanel - 1) / kPanel; }
  std::int32_t padded() const { return (inputs + kInputsPad - 1) / kInputsPad * kInputsPad; }
  std::int32_t segments() const { return (inputs + kSegment - 1) / kSegment; }
  std::size_t bytes() const {
    return static_cast<std::size_t>(panels()) * kPanel * static_cast<std::size_t>(padded()) * (bf16 ? 2 : 4);
  }
};

/// Where blocks that compute one segment each leave their sums; the last of them to finish adds them, ascending.
/// Only launches of few tiles are split so: `partials` has kPartials floats for each segment of the largest weight,
/// `tickets` kSplitTiles counters that are 0 between launches.
struct SplitSpace {
  float* partials;
  unsigned* tickets;
};
inline constexpr int kSplitTiles = 2048;
inline constexpr int kPartials = 1 << 20;

/// What the kernels see.
struct LinearArgs {
  const uint4* weight;
  const float* bias;
  const float* x;
  float* y;
  std::int64_t x_stride;
  std::int64_t y_stride;
  std::int32_t rows;
  std::int32_t outputs;
  std::int32_t inputs;
  std::int32_t padded;  // inputs, padded
  std::int32_t segments;
  bool x_aligned;  // rows of x can be read 16 bytes at a time
  bool split;      // a block computes segment blockIdx.z only
  SplitSpace space;
};

/// Once for a device: lets the kernels use the shared memory they need. Fails where none was compiled for the device.
cudaError_t configure_few();
cudaError_t configure_many();

/// Up to about 32 rows: streams the weight. More rows work too.
cudaError_t linear_few(LinearArgs args, bool bf16, int processors, cudaStream_t stream);
/// From about 32 rows, aligned: register tiles. `processors` is the GPU's count of multiprocessors.
cudaError_t linear_many(LinearArgs args, bool bf16, int processors, cudaStream_t stream);

/// Either of the two.
cudaError_t linear(const PackedLinear& weight, const tessera::sdk::Matrix& x, const tessera::sdk::Matrix& y,
                   const SplitSpace& space, int processors, cudaStream_t stream);

/// Packs `rows` outputs, [rows][inputs] of type `stored` in device memory, as outputs from `first` on.
cudaError_t pack_rows(const PackedLinear& weight, const void* source, tessera::sdk::DType stored, std::int32_t first,
                      std::int32_t rows, cudaStream_t stream);

}  // namespace tessera_cuda
