// sink_window on a GPU.
#include "tessera/sdk/cuda.h"
#include "tessera/sdk/register.h"
#include "window.h"

namespace tessera_window {
namespace {

constexpr int kThreads = 128;

__global__ void select_kernel(const sdk::TableArgs args, std::int32_t sinks) {
  const auto row = static_cast<std::int32_t>(blockIdx.x);
  const sdk::Slice &all = args.rows.slices[row], &kept = args.kept_slices[row];
  const std::int32_t pages = args.rows.positions[row] / sdk::kPageSize + 1;
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < kept.num_pages; i += kThreads)
    args.pages[kept.first_page + i] = args.rows.pages[all.first_page + source_of(i, kept.num_pages, pages, sinks)];
}

}  // namespace

class CudaSinkWindow final : public SinkWindowBase {
 public:
  CudaSinkWindow(sdk::Host& host, sdk::Status& status) : SinkWindowBase(host, status) {}
  virtual ~CudaSinkWindow() = default;

  std::uint64_t topology(sdk::RowMode) const noexcept override { return 1; }  // a block a row

  sdk::Status select(const sdk::TableArgs& args, const sdk::DeviceContext& device) noexcept override {
    if (args.rows.num_rows == 0) return {};
    select_kernel<<<static_cast<unsigned>(args.rows.num_rows), kThreads, 0, sdk::stream_of(device)>>>(args, sinks_);
    return sdk::cuda_status(cudaGetLastError(), "sink_window: selecting pages");
  }
};

}  // namespace tessera_window

TESSERA_REGISTER_PLUGIN(tessera::sdk::SparseDecode, tessera_window::CudaSinkWindow, tessera::sdk::Device::cuda,
                        "sink_window", "0.1.0",
                        tessera::sdk::Traits{tessera::sdk::kBatchInvariant | tessera::sdk::kChunkInvariant |
                                                 tessera::sdk::kPortableBits | tessera::sdk::kGraphCapturable,
                                             1u << static_cast<unsigned>(tessera::sdk::DType::f32), 1, 1024,
                                             TESSERA_GPU_ARCHITECTURES})
