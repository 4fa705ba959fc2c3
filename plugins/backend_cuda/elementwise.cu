#include "elementwise.h"
#include "tessera/sdk/cuda.h"
#include "tessera/sdk/numerics.h"

namespace tessera_cuda {
namespace {

namespace sdk = tessera::sdk;

constexpr int kNormThreads = 256;  // the lanes of fold_256

__global__ void embed_kernel(PackedLinear table, std::int32_t padded, const std::int32_t* tokens, sdk::Matrix out) {
  const int chunk = kChunkBytes / (table.bf16 ? 2 : 4);
  const std::int64_t token = tokens[blockIdx.x];
  const std::int64_t base = token / kPanel * padded * kPanel + token % kPanel * chunk;
  float* target = out.f32(blockIdx.x);
  for (int k = threadIdx.x; k < table.inputs; k += blockDim.x) {
    const std::int64_t at = base + static_cast<std::int64_t>(k / chunk) * kPanel * chunk + k % chunk;
    target[k] = table.bf16 ? sdk::widen_bf16(static_cast<const std::uint16_t*>(table.data)[at])
                           : static_cast<const float*>(table.data)[at];
  }
}

/// 1 / sqrt(mean of squares + eps) from the sum of squares of each of a block's 256 threads.
__device__ __forceinline__ float inverse_of(float lane, int cols, float eps) {
  const float mean = __fdiv_rn(sdk::block_fold_256(lane), static_cast<float>(cols));
  return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, eps)));
}

/// The same of values that stay where they are; `at(c)` is value c.
template <class At>
__device__ __forceinline__ float inverse_rms(At at, int cols, float eps) {
  float lane = 0.0f;
  for (int c = threadIdx.x; c < cols; c += kNormThreads) lane = sdk::fma_f32(at(c), at(c), lane);
  return inverse_of(lane, cols, eps);
}

/// Columns of a thread, which stay in registers where there are at most kHeld of them: a row is read once.
constexpr int kHeld = 16;

template <bool kHeldRow>
__global__ void __launch_bounds__(kNormThreads) norm_kernel(sdk::NormArgs args, sdk::Matrix delta) {
  float* x = args.x.f32(blockIdx.x);
  float* out = args.out.f32(blockIdx.x);
  const float* added = delta.data == nullptr ? nullptr : delta.f32(blockIdx.x);
  const int cols = args.x.cols, first = threadIdx.x;
  if constexpr (kHeldRow) {
    float held[kHeld];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int c = first + i * kNormThreads;
      held[i] = c < cols ? x[c] : 0.0f;
    }
    if (added != nullptr) {
#pragma unroll
      for (int i = 0; i < kHeld; ++i)
        if (const int c = first + i * kNormThreads; c < cols) x[c] = held[i] = __fadd_rn(held[i], added[c]);
    }
    float lane = 0.0f;
#pragma unroll
    for (int i = 0; i < kHeld; ++i)
      if (first + i * kNormThreads < cols) lane = sdk::fma_f32(held[i], held[i], lane);
    const float inverse = inverse_of(lane, cols, args.eps);
#pragma unroll
    for (int i = 0; i < kHeld; ++i)
      if (const int c = first + i * kNormThreads; c < cols)
        out[c] = __fmul_rn(__fmul_rn(held[i], inverse), args.weight[c]);
  } else {
    if (added != nullptr)
      for (int c = first; c < cols; c += kNormThreads) x[c] = __fadd_rn(x[c], added[c]);
    const float inverse = inverse_rms([x](int c) { return x[c]; }, cols, args.eps);  // each thread reads its own
    for (int c = first; c < cols; c += kNormThreads) out[c] = __fmul_rn(__fmul_rn(x[c], inverse), args.weight[c]);
  }
}

/// Block (row, head): query heads first, then key heads, then value heads. 256 threads if there is a norm.
__global__ void __launch_bounds__(kNormThreads) rotary_kernel(sdk::RotaryArgs args) {
  const int row = blockIdx.x, kv_head = static_cast<int>(blockIdx.y) - args.num_q_heads;
  const std::int32_t position = args.rows.positions[row];
  const float* in = args.qkv.f32(row) + static_cast<std::int64_t>(blockIdx.y) * args.head_dim;
  float* out = args.q_out.f32(row) + static_cast<std::int64_t>(blockIdx.y) * args.head_dim;
  const bool is_value = kv_head >= args.num_kv_heads;
  if (kv_head >= 0) {
    const std::int32_t* pages = args.rows.pages + args.rows.slices[args.rows.row_slice[row]].first_page;
    const std::int64_t at = args.kv.offset(pages[position / sdk::kPageSize], args.layer, position % sdk::kPageSize,
                                           is_value ? kv_head - args.num_kv_heads : kv_head);
    out = static_cast<float*>(is_value ? args.kv.v : args.kv.k) + at;
  }
  const float* norm = kv_head < 0 ? args.q_norm : is_value ? nullptr : args.k_norm;
  const float inverse = norm == nullptr ? 1.0f : inverse_rms([in](int c) { return in[c]; }, args.head_dim, args.eps);
  const auto value = [&](int c) { return norm == nullptr ? in[c] : __fmul_rn(__fmul_rn(in[c], inverse), norm[c]); };
  const int rotated = is_value ? 0 : args.rotary_dim, half = rotated / 2;
  const std::int64_t table = static_cast<std::int64_t>(position) * half;
  for (int i = threadIdx.x; i < half; i += blockDim.x) {
    const float a = value(i), b = value(i + half), c = args.cosines[table + i], s = args.sines[table + i];
    out[i] = sdk::fma_f32(a, c, -__fmul_rn(b, s));
    out[i + half] = sdk::fma_f32(b, c, __fmul_rn(a, s));
  }
  for (int i = rotated + threadIdx.x; i < args.head_dim; i += blockDim.x) out[i] = value(i);
}

__global__ void swiglu_kernel(sdk::Matrix gate_up, sdk::Matrix out) {
  const int i = blockIdx.y * blockDim.x + threadIdx.x;
  if (i >= out.cols) return;
  const float* gate = gate_up.f32(blockIdx.x);
  out.f32(blockIdx.x)[i] = __fmul_rn(sdk::silu_f32(gate[i]), gate[out.cols + i]);
}

__global__ void gather_kernel(sdk::Matrix x, sdk::Matrix delta, const std::int32_t* rows, sdk::Matrix out) {
  const std::int32_t row = rows[blockIdx.x];
  float* target = out.f32(blockIdx.x);
  for (int c = threadIdx.x; c < out.cols; c += blockDim.x)
    target[c] = delta.data == nullptr ? x.f32(row)[c] : __fadd_rn(x.f32(row)[c], delta.f32(row)[c]);
}

__global__ void load_states_kernel(sdk::Matrix bank, sdk::PackedRows rows, sdk::Matrix out) {
  if (rows.slices[rows.row_slice[blockIdx.x]].depth == 0) return;
  const float* source = bank.f32(rows.states[blockIdx.x]);
  for (int c = threadIdx.x; c < out.cols; c += blockDim.x) out.f32(blockIdx.x)[c] = source[c];
}

__global__ void store_states_kernel(sdk::Matrix x, const std::int32_t* states, sdk::Matrix bank) {
  if (states[blockIdx.x] < 0) return;
  float* target = bank.f32(states[blockIdx.x]);
  for (int c = threadIdx.x; c < x.cols; c += blockDim.x) target[c] = x.f32(blockIdx.x)[c];
}

/// Block (copy, layer, K or V).
__global__ void copy_kv_kernel(sdk::KvView kv, const sdk::KvCopy* copies) {
  const sdk::KvCopy copy = copies[blockIdx.x];
  float* side = static_cast<float*>(blockIdx.z == 0 ? kv.k : kv.v);
  const float* source = side + kv.offset(copy.from_page, blockIdx.y, copy.slot, 0);
  float* target = side + kv.offset(copy.to_page, blockIdx.y, copy.slot, 0);
  for (int i = threadIdx.x; i < kv.num_kv_heads * kv.head_dim; i += blockDim.x) target[i] = source[i];
}

}  // namespace

cudaError_t embed(const PackedLinear& table, const sdk::PackedRows& rows, const sdk::Matrix& out, cudaStream_t stream) {
  if (rows.num_rows > 0) embed_kernel<<<rows.num_rows, 256, 0, stream>>>(table, table.padded(), rows.tokens, out);
  return cudaGetLastError();
}

cudaError_t rms_norm(const sdk::NormArgs& args, cudaStream_t stream) {
  const sdk::Matrix delta = args.delta == nullptr ? sdk::Matrix{} : *args.delta;
  if (args.x.rows == 0) return cudaSuccess;
  const bool held = args.x.cols <= kHeld * kNormThreads;
  (held ? norm_kernel<true> : norm_kernel<false>)<<<args.x.rows, kNormThreads, 0, stream>>>(args, delta);
  return cudaGetLastError();
}

cudaError_t rotary_append(const sdk::RotaryArgs& args, cudaStream_t stream) {
  const dim3 grid(args.rows.num_rows, args.num_q_heads + 2 * args.num_kv_heads);
  const bool norms = args.q_norm != nullptr || args.k_norm != nullptr;
  if (grid.x > 0) rotary_kernel<<<grid, norms ? kNormThreads : 64, 0, stream>>>(args);
  return cudaGetLastError();
}

cudaError_t swiglu(const sdk::Matrix& gate_up, const sdk::Matrix& out, cudaStream_t stream) {
  constexpr int kThreads = 256;
  const dim3 grid(out.rows, (out.cols + kThreads - 1) / kThreads);
  if (grid.x > 0) swiglu_kernel<<<grid, kThreads, 0, stream>>>(gate_up, out);
  return cudaGetLastError();
}

cudaError_t gather(const sdk::Matrix& x, const sdk::Matrix* delta, const sdk::PackedRows& rows, const sdk::Matrix& out,
                   cudaStream_t stream) {
  const sdk::Matrix added = delta == nullptr ? sdk::Matrix{} : *delta;
  if (out.rows > 0) gather_kernel<<<out.rows, 256, 0, stream>>>(x, added, rows.logit_rows, out);
  return cudaGetLastError();
}

cudaError_t load_states(const sdk::Matrix& bank, const sdk::PackedRows& rows, const sdk::Matrix& out,
                        cudaStream_t stream) {
  if (rows.num_rows > 0) load_states_kernel<<<rows.num_rows, 256, 0, stream>>>(bank, rows, out);
  return cudaGetLastError();
}

cudaError_t store_states(const sdk::Matrix& x, const sdk::PackedRows& rows, const sdk::Matrix& bank,
                         cudaStream_t stream) {
  if (rows.num_rows > 0) store_states_kernel<<<rows.num_rows, 256, 0, stream>>>(x, rows.states, bank);
  return cudaGetLastError();
}

cudaError_t copy_kv(const sdk::KvView& kv, const sdk::KvCopy* copies, std::int32_t count, cudaStream_t stream) {
  const dim3 grid(count, kv.num_layers, 2);
  if (count > 0) copy_kv_kernel<<<grid, 128, 0, stream>>>(kv, copies);
  return cudaGetLastError();
}

}  // namespace tessera_cuda
