#include "tiled.cuh"

namespace tessera_exact {
namespace {

template <int kParts, int kKeys>
__global__ void exact_kernel(const TiledArgs args) {
  extern __shared__ float4 memory[];
  const Warp warp = warp_of(args);
  if (warp.longest == 0) return;  // the whole block
  const Shared shared = shared_of(args, warp, reinterpret_cast<float*>(memory), kKeys * args.head_dim, args.capacity);
  const std::int32_t* table = args.table > 0 ? shared.table : args.pages + warp.slice.first_page;
  const Source keys{args.k, args.own_k, table}, values{args.v, args.own_v, table};
  const bool stored = warp.longest <= args.capacity;
  Lanes<kParts> q, total;
  q.clear(), total.clear();
  if (warp.length > 0) q.load(args.q + warp.packed_row() * args.q_stride + warp.head * args.head_dim, args.head_dim);

  const float largest =
      score_range<kParts, kKeys>(args, warp, keys, 0, warp.longest, q, shared.tile, stored ? shared.scores : nullptr,
                                 emitted_row(args, warp), -INFINITY);
  float sum = 0.0f;
  for (int begin = 0; begin < warp.longest; begin += kSegment) {
    const int count = max(min(kSegment, warp.length - begin), 0);
    float* weights = shared.scores + (stored ? begin : 0);
    if (!stored)
      score_range<kParts, kKeys>(args, warp, keys, begin, begin + kSegment, q, shared.tile, weights, nullptr, largest);
    if (count > 0) {
      const float part = weigh_segment(weights, count, largest);
      sum = begin == 0 ? part : __fadd_rn(sum, part);
    }
    Lanes<kParts> segment;
    segment.clear();
    for (int base = begin; base < min(begin + kSegment, warp.longest); base += kKeys) {
      __syncthreads();
      stage<kKeys>(args, warp, values, base, shared.tile);
      __syncthreads();
      for (int i = 0; i < min(kKeys, warp.length - base); ++i)
        add_values(weights[base - begin + i], shared.tile + i * args.head_dim, args, segment);
    }
    if (count == 0) continue;
#pragma unroll
    for (int i = 0; i < kParts; ++i)
      total.part[i] = begin == 0 ? segment.part[i] : __fadd_rn(total.part[i], segment.part[i]);
  }
  if (warp.length == 0) return;
  const float inverse = __fdiv_rn(1.0f, sum);
  float* out = args.out + warp.packed_row() * args.out_stride + warp.head * args.head_dim;
  for (int i = 0; i < kParts; ++i)
    if (const int d = static_cast<int>(threadIdx.x) % 32 + 32 * i; d < args.head_dim)
      out[d] = __fmul_rn(total.part[i], inverse);
}

/// Online softmax: K and V staged together, a running maximum, everything rescaled when it grows. Not the reference's
/// order: kept to show what that costs (docs/numerics.md).
template <int kParts, int kKeys>
__global__ void online_kernel(const TiledArgs args) {
  extern __shared__ float4 memory[];
  const Warp warp = warp_of(args);
  if (warp.longest == 0) return;
  const int tile_floats = kKeys * args.head_dim, lane = static_cast<int>(threadIdx.x) % 32;
  const Shared shared = shared_of(args, warp, reinterpret_cast<float*>(memory), 2 * tile_floats, kKeys);
  const std::int32_t* table = args.table > 0 ? shared.table : args.pages + warp.slice.first_page;
  const Source keys{args.k, args.own_k, table}, values{args.v, args.own_v, table};
  Lanes<kParts> q, total;
  q.clear(), total.clear();
  if (warp.length > 0) q.load(args.q + warp.packed_row() * args.q_stride + warp.head * args.head_dim, args.head_dim);
  float* emitted = emitted_row(args, warp);
  float largest = -INFINITY, sum = 0.0f;
  for (int base = 0; base < warp.longest; base += kKeys) {
    __syncthreads();
    stage<kKeys>(args, warp, keys, base, shared.tile);
    stage<kKeys>(args, warp, values, base, shared.tile + tile_floats);
    __syncthreads();
    const int count = min(kKeys, warp.length - base);
    if (count <= 0) continue;
    float grown = largest;
    for (int i = 0; i < count; ++i) {
      const float value = score(q, shared.tile + i * args.head_dim, args);
      grown = fmaxf(grown, value);
      if (lane == 0) shared.scores[i] = value;
      if (lane == 0 && emitted != nullptr) emitted[base + i] = value;
    }
    __syncwarp();
    Lanes<kParts> part;
    part.clear();
    float part_sum = 0.0f;
    for (int i = 0; i < count; ++i) {
      const float weight = sdk::exp_f32(__fsub_rn(shared.scores[i], grown));
      part_sum = __fadd_rn(part_sum, weight);
      add_values(weight, shared.tile + tile_floats + i * args.head_dim, args, part);
    }
    const float shrink = sdk::exp_f32(__fsub_rn(largest, grown));
    sum = __fmaf_rn(sum, shrink, part_sum);
#pragma unroll
    for (int i = 0; i < kParts; ++i) total.part[i] = __fmaf_rn(total.part[i], shrink, part.part[i]);
    largest = grown;
    __syncwarp();
  }
  if (warp.length == 0) return;
  float* out = args.out + warp.packed_row() * args.out_stride + warp.head * args.head_dim;
  for (int i = 0; i < kParts; ++i)
    if (const int d = lane + 32 * i; d < args.head_dim) out[d] = __fdiv_rn(total.part[i], sum);
}

constexpr int kCopyThreads = 128;

/// hybrid: the step's own K and V side by side, so that they are read without the page table.
__global__ void copy_own_rows(const TiledArgs args) {
  const int row = static_cast<int>(blockIdx.x), width = args.kv_heads * args.head_dim;
  const int position = args.positions[row];
  const sdk::Slice slice = args.slices[args.row_slice[row]];
  const std::int64_t source = args.pages[slice.first_page + position / sdk::kPageSize] * args.page_stride +
                              static_cast<std::int64_t>(position % sdk::kPageSize) * width;
  for (int i = static_cast<int>(threadIdx.x); i < width; i += static_cast<int>(blockDim.x)) {
    args.own_k[static_cast<std::int64_t>(row) * width + i] = args.k[source + i];
    args.own_v[static_cast<std::int64_t>(row) * width + i] = args.v[source + i];
  }
}

using Kernel = void (*)(const TiledArgs);

template <int kParts>
Kernel kernel_of(std::int32_t tile_keys, bool online) {
  switch (tile_keys) {
    case 16: return online ? online_kernel<kParts, 16> : exact_kernel<kParts, 16>;
    case 32: return online ? online_kernel<kParts, 32> : exact_kernel<kParts, 32>;
    default: return online ? online_kernel<kParts, 64> : exact_kernel<kParts, 64>;
  }
}

Kernel kernel_of(std::int32_t head_dim, std::int32_t tile_keys, bool online) {
  switch (head_dim / 32) {
    case 1: return kernel_of<1>(tile_keys, online);
    case 2: return kernel_of<2>(tile_keys, online);
    case 3: return kernel_of<3>(tile_keys, online);
    case 4: return kernel_of<4>(tile_keys, online);
    default: return kernel_of<8>(tile_keys, online);
  }
}

}  // namespace

std::int64_t tiled_shared_bytes(const TiledArgs& args, bool online) {
  const std::int64_t tile = std::int64_t{args.tile_keys} * args.head_dim * (online ? 2 : 1);
  const std::int64_t scores = std::int64_t{args.tile_rows} * args.group * (online ? args.tile_keys : args.capacity);
  return 4 * (tile + scores + args.table);
}

sdk::Status prepare_tiled(std::int32_t head_dim, std::int64_t most_shared_bytes) {
  for (const std::int32_t keys : {16, 32, 64})
    for (const bool online : {false, true}) {
      const auto status = sdk::cuda_status(
          cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel_of(head_dim, keys, online)),
                               cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(most_shared_bytes)),
          "cudaFuncSetAttribute");
      if (!status.ok()) return status;
    }
  return {};
}

sdk::Status launch_tiled(const TiledArgs& args, bool online, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  if (args.own_k != nullptr) copy_own_rows<<<static_cast<unsigned>(args.num_rows), kCopyThreads, 0, on>>>(args);
  const dim3 grid(static_cast<unsigned>(args.kv_heads),
                  static_cast<unsigned>((args.max_rows + args.tile_rows - 1) / args.tile_rows),
                  static_cast<unsigned>(args.num_slices));
  const auto threads = static_cast<unsigned>(32 * args.tile_rows * args.group);
  kernel_of(args.head_dim, args.tile_keys,
            online)<<<grid, threads, static_cast<std::size_t>(tiled_shared_bytes(args, online)), on>>>(args);
  return sdk::cuda_status(cudaGetLastError(), "attention_exact: launching a tiled kernel");
}

void list_tiled(const TiledArgs& args, bool online, bool hybrid, sdk::KernelList& list) {
  if (hybrid) list.add("own rows", reinterpret_cast<const void*>(&copy_own_rows), kCopyThreads);
  list.add(online ? "tiled online" : "tiled exact",
           reinterpret_cast<const void*>(kernel_of(args.head_dim, args.tile_keys, online)),
           32 * args.tile_rows * args.group, static_cast<std::size_t>(tiled_shared_bytes(args, online)));
}

}  // namespace tessera_exact
