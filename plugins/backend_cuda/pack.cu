// Rows of a checkpoint's matrix into the layout of PackedLinear.
#include "linear.h"

namespace tessera_cuda {
namespace {

namespace sdk = tessera::sdk;

__device__ float convert(float value, float) { return value; }
__device__ std::uint16_t convert(std::uint16_t bf16, std::uint16_t) { return bf16; }
__device__ float convert(std::uint16_t f16, float) { return sdk::widen_f16(f16); }
__device__ float minus_zero(float) { return -0.0f; }
__device__ std::uint16_t minus_zero(std::uint16_t) { return 0x8000; }

template <class Stored, class Kept>
__global__ void pack_kernel(PackedLinear weight, std::int32_t padded, const Stored* source, std::int32_t first) {
  constexpr int kChunk = kChunkBytes / static_cast<int>(sizeof(Kept));
  const std::int64_t output = first + static_cast<std::int64_t>(blockIdx.x);
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * weight.inputs;
  auto* data = static_cast<Kept*>(weight.data) + output / kPanel * padded * kPanel + output % kPanel * kChunk;
  for (int k = threadIdx.x; k < padded; k += blockDim.x)
    data[static_cast<std::int64_t>(k / kChunk) * kPanel * kChunk + k % kChunk] =
        k < weight.inputs ? convert(source[row + k], Kept{}) : minus_zero(Kept{});
}

template <class Stored, class Kept>
cudaError_t launch(const PackedLinear& weight, const void* source, std::int32_t first, std::int32_t rows,
                   cudaStream_t stream) {
  pack_kernel<Stored, Kept>
      <<<rows, 256, 0, stream>>>(weight, weight.padded(), static_cast<const Stored*>(source), first);
  return cudaGetLastError();
}

}  // namespace

cudaError_t pack_rows(const PackedLinear& weight, const void* source, sdk::DType stored, std::int32_t first,
                      std::int32_t rows, cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  if (stored == sdk::DType::f32) return launch<float, float>(weight, source, first, rows, stream);
  if (stored == sdk::DType::bf16) return launch<std::uint16_t, std::uint16_t>(weight, source, first, rows, stream);
  return launch<std::uint16_t, float>(weight, source, first, rows, stream);  // f16, kept as f32
}

}  // namespace tessera_cuda
