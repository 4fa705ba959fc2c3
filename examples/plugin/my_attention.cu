// A thread for each row and query head: the right bits, and slow. A faster kernel starts here.
#include "attend.h"
#include "my_attention_cuda.h"

namespace my_attention {
namespace {

constexpr int kThreads = 64;

__global__ void attend_kernel(const AttentionArgs args, const AttentionShape shape) {
  const auto head = static_cast<std::int32_t>(blockIdx.y * kThreads + threadIdx.x);
  if (head < shape.num_q_heads) attend(args, shape, static_cast<std::int32_t>(blockIdx.x), head);
}

}  // namespace

cudaError_t launch(const AttentionArgs& args, const AttentionShape& shape, cudaStream_t stream) {
  const dim3 grid(args.rows.num_rows, (shape.num_q_heads + kThreads - 1) / kThreads);
  if (grid.x > 0) attend_kernel<<<grid, kThreads, 0, stream>>>(args, shape);
  return cudaGetLastError();
}

}  // namespace my_attention
