// The device memory of all pages. Layout: docs/kv-layout.md.
#pragma once
#include <cstdint>

#include "base/status.h"
#include "tessera/sdk/backend.h"
#include "tessera/sdk/kv.h"

namespace tessera {

struct KvShape {
  std::int32_t num_layers;
  std::int32_t num_kv_heads;
  std::int32_t head_dim;
  sdk::DType dtype;
};

/// Bytes of one page, K and V together, all layers.
std::int64_t page_bytes(const KvShape& shape);

/// Claims zeroed pages from the backend, which owns and frees them.
Result<sdk::KvView> allocate_kv(sdk::Backend& backend, const KvShape& shape, std::int32_t num_pages);

}  // namespace tessera
