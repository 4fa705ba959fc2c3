// What the plugin of every device shares: a row attends to the first pages of its history and to the last ones.
#pragma once
#include <cstdint>

#include "tessera/sdk/host.h"
#include "tessera/sdk/numerics.h"
#include "tessera/sdk/sparse_decode.h"

namespace tessera_window {

namespace sdk = tessera::sdk;

TESSERA_INLINE std::int32_t pages_for(std::int32_t positions) {
  return (positions + sdk::kPageSize - 1) / sdk::kPageSize;
}

/// Entry of a row's table that its kept entry `i` of `kept` comes from. `sinks` is at most `kept`.
TESSERA_INLINE std::int32_t source_of(std::int32_t i, std::int32_t kept, std::int32_t pages, std::int32_t sinks) {
  return i < sinks ? i : pages - (kept - i);
}

/// Options, in positions, rounded up to pages: sink (the first ones, 64) and window (the last ones, 1024).
class SinkWindowBase : public sdk::SparseDecode {
 public:
  SinkWindowBase(sdk::Host& host, sdk::Status& status) {
    std::int64_t sink = 0, window = 0;
    status = host.option_int("sink", 64, 0, 1 << 24, &sink);
    if (status.ok()) status = host.option_int("window", 1024, 1, 1 << 24, &window);
    sinks_ = pages_for(static_cast<std::int32_t>(sink));
    // A window that ends within a page begins within one too.
    recent_ = pages_for(static_cast<std::int32_t>(window)) + 1;
  }
  sdk::SparseStyle style() const noexcept override { return sdk::SparseStyle::tables; }
  std::int32_t capture_depth() const noexcept override { return 0; }
  bool active() const noexcept override { return true; }
  std::int32_t pages_kept(std::int32_t position) const noexcept override {
    const std::int32_t pages = position / sdk::kPageSize + 1, most = sinks_ + recent_;
    return pages < most ? pages : most;
  }
  sdk::Status bind(const sdk::AttentionShape&, const sdk::StepLimits&, const sdk::ReferenceRoom&,
                   const sdk::DeviceContext&, std::size_t& workspace_bytes) noexcept override {
    workspace_bytes = 0;
    return {};
  }

 protected:
  ~SinkWindowBase() = default;
  std::int32_t sinks_ = 0, recent_ = 0;  // pages
};

}  // namespace tessera_window
