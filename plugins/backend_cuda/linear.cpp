#include "linear.h"

namespace tessera_cuda {

namespace {
constexpr std::int32_t kFewRows = 32;
}

cudaError_t linear(const PackedLinear& weight, const tessera::sdk::Matrix& x, const tessera::sdk::Matrix& y,
                   const SplitSpace& space, int processors, cudaStream_t stream) {
  if (x.rows == 0) return cudaSuccess;
  const bool aligned = reinterpret_cast<std::uintptr_t>(x.data) % kChunkBytes == 0 && x.stride % 4 == 0;
  const LinearArgs args{.weight = static_cast<const uint4*>(weight.data),
                        .bias = weight.bias,
                        .x = x.f32(),
                        .y = y.f32(),
                        .x_stride = x.stride,
                        .y_stride = y.stride,
                        .rows = x.rows,
                        .outputs = weight.outputs,
                        .inputs = weight.inputs,
                        .padded = weight.padded(),
                        .segments = weight.segments(),
                        .x_aligned = aligned,
                        .split = false,
                        .space = space};
  if (x.rows <= kFewRows || !aligned) return linear_few(args, weight.bf16, processors, stream);
  return linear_many(args, weight.bf16, processors, stream);
}

}  // namespace tessera_cuda
