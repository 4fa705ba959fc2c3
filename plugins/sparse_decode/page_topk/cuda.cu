// page_topk on a GPU: the CPU's choice.
#include "tessera/sdk/cuda.h"
#include "tessera/sdk/register.h"
#include "topk.h"

namespace tessera_pages {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

/// A block a row; it has work where the row is the last one of its slice in its page.
__global__ void follow_kernel(const sdk::TableArgs args, const Bounds bounds) {
  const auto row = static_cast<std::int32_t>(blockIdx.x);
  if (!ends_page(args.rows, row)) return;
  const std::int32_t position = args.rows.positions[row], last = position % sdk::kPageSize;
  const std::int32_t page =
      args.rows.pages[args.rows.slices[args.rows.row_slice[row]].first_page + position / sdk::kPageSize];
  const auto* keys = static_cast<const float*>(args.kv.k) + args.kv.offset(page, args.layer, 0, 0);
  const std::int32_t width = args.kv.num_kv_heads * args.kv.head_dim;
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < width; i += kThreads) {
    float low = keys[i], high = low;
    for (std::int32_t slot = 1; slot <= last; ++slot) {
      const float key = keys[slot * width + i];
      low = key < low ? key : low;
      high = key > high ? key : high;
    }
    float* out = bounds.of(page, args.layer, i / args.kv.head_dim);
    out[i % args.kv.head_dim] = low;
    out[args.kv.head_dim + i % args.kv.head_dim] = high;
  }
}

/// Keys of the pages of a row, [entry], larger is better: a warp a page, a lane a head.
__global__ void __launch_bounds__(kThreads)
    bound_kernel(const sdk::TableArgs args, const Bounds bounds, std::int32_t q_heads, std::uint32_t* keys,
                 std::int32_t most_pages) {
  const auto row = static_cast<std::int32_t>(blockIdx.y);
  const std::int32_t entry = static_cast<std::int32_t>(blockIdx.x * kWarps + threadIdx.x / 32);
  const std::int32_t pages = args.rows.positions[row] / sdk::kPageSize + 1;
  if (entry >= pages) return;
  std::uint32_t best = entry == 0 || entry + 1 == pages ? 0xFFFFFFFFu : 0u;
  if (best == 0) {
    const std::int32_t page = args.rows.pages[args.rows.slices[row].first_page + entry];
    const std::int32_t group = q_heads / bounds.kv_heads;
    for (std::int32_t head = static_cast<std::int32_t>(threadIdx.x) % 32; head < q_heads; head += 32) {
      const std::uint32_t key = sdk::rank_key(bound_of(args.q.f32(row) + head * bounds.head_dim,
                                                       bounds.of(page, args.layer, head / group), bounds.head_dim));
      best = key > best ? key : best;
    }
    best = __reduce_max_sync(sdk::kWholeWarp, best);
  }
  if (threadIdx.x % 32 == 0) keys[static_cast<std::int64_t>(row) * most_pages + entry] = best;
}

/// A block a row: an entry is kept when fewer than the wanted number are better, and goes behind the kept ones before
/// it.
__global__ void __launch_bounds__(kThreads)
    choose_kernel(const sdk::TableArgs args, const std::uint32_t* all_keys, std::int32_t most_pages) {
  extern __shared__ std::uint32_t memory[];
  const auto row = static_cast<std::int32_t>(blockIdx.x);
  const sdk::Slice &all = args.rows.slices[row], &kept = args.kept_slices[row];
  const std::int32_t pages = args.rows.positions[row] / sdk::kPageSize + 1;
  std::uint32_t* keys = memory;
  std::uint32_t* taken = memory + pages;
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < pages; i += kThreads)
    keys[i] = all_keys[static_cast<std::int64_t>(row) * most_pages + i];
  __syncthreads();
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < pages; i += kThreads) {
    std::int32_t better = 0;
    for (std::int32_t j = 0; j < pages; ++j) better += keys[j] > keys[i] || (keys[j] == keys[i] && j < i) ? 1 : 0;
    taken[i] = better < kept.num_pages ? 1u : 0u;
  }
  __syncthreads();
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < pages; i += kThreads) {
    if (taken[i] == 0) continue;
    std::int32_t before = 0;
    for (std::int32_t j = 0; j < i; ++j) before += static_cast<std::int32_t>(taken[j]);
    args.pages[kept.first_page + before] = args.rows.pages[all.first_page + i];
  }
}

}  // namespace

class CudaPageTopk final : public PageTopkBase {
 public:
  CudaPageTopk(sdk::Host& host, sdk::Status& status) : PageTopkBase(host, status) {}
  virtual ~CudaPageTopk() { cudaFree(bounds_.values); }

  sdk::Status bind(const sdk::AttentionShape& shape, const sdk::StepLimits& limits, const sdk::ReferenceRoom& room,
                   const sdk::DeviceContext& device, std::size_t& workspace_bytes) noexcept override {
    if (sdk::Status status = PageTopkBase::bind(shape, limits, room, device, workspace_bytes); !status.ok())
      return status;
    shared_bytes_ = 2 * sizeof(std::uint32_t) * static_cast<std::size_t>(most_pages_);
    return sdk::cuda_status(cudaFuncSetAttribute(choose_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                 static_cast<int>(shared_bytes_)),
                            "page_topk: shared memory for the pages of one row");
  }
  sdk::Status attach(const sdk::KvView& kv) noexcept override {
    bounds_ = bounds_for(kv);
    const std::size_t bytes = bound_bytes(kv);
    const sdk::Status status = sdk::cuda_status(cudaMalloc(reinterpret_cast<void**>(&bounds_.values), bytes),
                                                "page_topk: claiming the bounds of all pages");
    return status.ok() ? sdk::cuda_status(cudaMemset(bounds_.values, 0, bytes), "cudaMemset") : status;
  }
  sdk::Status appended(const sdk::TableArgs& args, const sdk::DeviceContext& device) noexcept override {
    if (args.rows.num_rows == 0) return {};
    follow_kernel<<<static_cast<unsigned>(args.rows.num_rows), kThreads, 0, sdk::stream_of(device)>>>(args, bounds_);
    return sdk::cuda_status(cudaGetLastError(), "page_topk: bounds of appended pages");
  }
  sdk::Status plan(sdk::RowMode, const sdk::PackedRows& rows) noexcept override {
    std::int32_t last = 0;
    for (std::int32_t row = 0; row < rows.num_rows; ++row)
      last = last > rows.positions[row] ? last : rows.positions[row];
    pages_ = sdk::launch_bucket(last / sdk::kPageSize + 1);
    return {};
  }
  std::uint64_t topology(sdk::RowMode) const noexcept override { return static_cast<std::uint64_t>(pages_); }
  sdk::Status select(const sdk::TableArgs& args, const sdk::DeviceContext& device) noexcept override {
    if (args.rows.num_rows == 0) return {};
    auto* keys = static_cast<std::uint32_t*>(args.workspace);
    const auto rows = static_cast<unsigned>(args.rows.num_rows);
    const auto pages = static_cast<unsigned>(pages_);
    bound_kernel<<<dim3((pages + kWarps - 1) / kWarps, rows), kThreads, 0, sdk::stream_of(device)>>>(
        args, bounds_, shape_.num_q_heads, keys, most_pages_);
    choose_kernel<<<rows, kThreads, shared_bytes_, sdk::stream_of(device)>>>(args, keys, most_pages_);
    return sdk::cuda_status(cudaGetLastError(), "page_topk: selecting pages");
  }

 private:
  std::size_t shared_bytes_ = 0;
  std::int32_t pages_ = 0;  // of the longest planned row, as launches are sized
};

}  // namespace tessera_pages

TESSERA_REGISTER_PLUGIN(tessera::sdk::SparseDecode, tessera_pages::CudaPageTopk, tessera::sdk::Device::cuda,
                        "page_topk", "0.1.0",
                        tessera::sdk::Traits{tessera::sdk::kBatchInvariant | tessera::sdk::kChunkInvariant |
                                                 tessera::sdk::kPortableBits | tessera::sdk::kGraphCapturable,
                                             1u << static_cast<unsigned>(tessera::sdk::DType::f32), 1, 1024,
                                             TESSERA_GPU_ARCHITECTURES})
