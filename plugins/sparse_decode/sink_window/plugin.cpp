// sink_window on a CPU.
#include "tessera/sdk/register.h"
#include "window.h"

namespace tessera_window {

class SinkWindow final : public SinkWindowBase {
 public:
  SinkWindow(sdk::Host& host, sdk::Status& status) : SinkWindowBase(host, status) {}
  virtual ~SinkWindow() = default;

  sdk::Status select(const sdk::TableArgs& args, const sdk::DeviceContext&) noexcept override {
    for (std::int32_t row = 0; row < args.rows.num_rows; ++row) {
      const sdk::Slice &all = args.rows.slices[row], &kept = args.kept_slices[row];
      const std::int32_t pages = args.rows.positions[row] / sdk::kPageSize + 1;
      for (std::int32_t i = 0; i < kept.num_pages; ++i)
        args.pages[kept.first_page + i] = args.rows.pages[all.first_page + source_of(i, kept.num_pages, pages, sinks_)];
    }
    return {};
  }
};

}  // namespace tessera_window

TESSERA_REGISTER_PLUGIN(tessera::sdk::SparseDecode, tessera_window::SinkWindow, tessera::sdk::Device::cpu,
                        "sink_window", "0.1.0",
                        tessera::sdk::Traits{
                            tessera::sdk::kBatchInvariant | tessera::sdk::kChunkInvariant | tessera::sdk::kPortableBits,
                            1u << static_cast<unsigned>(tessera::sdk::DType::f32), 1, 1024, ""})
