// What the plugin of every device shares: a row attends to its first page, its last one, and those whose keys may match
// its queries best (docs/numerics.md, "Sparse decoding"; the bound is that of Quest).
#pragma once
#include <cstdint>

#include "tessera/sdk/host.h"
#include "tessera/sdk/numerics.h"
#include "tessera/sdk/sparse_decode.h"

namespace tessera_pages {

namespace sdk = tessera::sdk;

/// The least and the largest key component of every page: [page][layer][kv_head][2][head_dim].
struct Bounds {
  float* values;
  std::int32_t layers, kv_heads, head_dim;

  TESSERA_HOST_DEVICE float* of(std::int32_t page, std::int32_t layer, std::int32_t kv_head) const {
    return values + ((static_cast<std::int64_t>(page) * layers + layer) * kv_heads + kv_head) * 2 * head_dim;
  }
};

/// No key of the page scores higher with this query, up to the scale; components ascending, one rounded operation each.
TESSERA_INLINE float bound_of(const float* q, const float* bounds, std::int32_t head_dim) {
  float sum = 0.0f;
  for (std::int32_t d = 0; d < head_dim; ++d) {
    const float low = q[d] * bounds[d], high = q[d] * bounds[head_dim + d];
    sum = sum + (low > high ? low : high);
  }
  return sum;
}

/// A page whose bounds must follow: the row is the last one of its slice in it.
TESSERA_INLINE bool ends_page(const sdk::PackedRows& rows, std::int32_t row) {
  const sdk::Slice& slice = rows.slices[rows.row_slice[row]];
  const std::int32_t position = rows.positions[row];
  return position % sdk::kPageSize == sdk::kPageSize - 1 || position == slice.first_position + slice.num_rows - 1;
}

/// Option: budget, positions that a row attends to, rounded up to pages (1024).
class PageTopkBase : public sdk::SparseDecode {
 public:
  PageTopkBase(sdk::Host& host, sdk::Status& status) {
    std::int64_t budget = 0;
    status = host.option_int("budget", 1024, 2 * sdk::kPageSize, 1 << 24, &budget);
    budget_ = static_cast<std::int32_t>((budget + sdk::kPageSize - 1) / sdk::kPageSize);
  }
  sdk::SparseStyle style() const noexcept override { return sdk::SparseStyle::tables; }
  std::int32_t capture_depth() const noexcept override { return 0; }
  bool active() const noexcept override { return true; }
  std::int32_t pages_kept(std::int32_t position) const noexcept override {
    const std::int32_t pages = position / sdk::kPageSize + 1;
    return pages < budget_ ? pages : budget_;
  }
  sdk::Status bind(const sdk::AttentionShape& shape, const sdk::StepLimits& limits, const sdk::ReferenceRoom&,
                   const sdk::DeviceContext&, std::size_t& workspace_bytes) noexcept override {
    if (shape.kv_dtype != sdk::DType::f32)
      return sdk::fail(sdk::Code::unsupported, "page_topk serves a KV cache of f32 only");
    shape_ = shape;
    most_pages_ = (limits.max_context + sdk::kPageSize - 1) / sdk::kPageSize;
    workspace_bytes =
        sizeof(std::uint32_t) * static_cast<std::size_t>(most_pages_) * static_cast<std::size_t>(limits.max_slices);
    return {};
  }

 protected:
  ~PageTopkBase() = default;
  Bounds bounds_for(const sdk::KvView& kv) const { return {nullptr, kv.num_layers, kv.num_kv_heads, kv.head_dim}; }
  std::size_t bound_bytes(const sdk::KvView& kv) const {
    return sizeof(float) * 2 * static_cast<std::size_t>(kv.num_pages) * static_cast<std::size_t>(kv.num_layers) *
           static_cast<std::size_t>(kv.num_kv_heads) * static_cast<std::size_t>(kv.head_dim);
  }

  std::int32_t budget_ = 0;  // pages
  std::int32_t most_pages_ = 0;
  sdk::AttentionShape shape_{};
  Bounds bounds_{};
};

}  // namespace tessera_pages
