#include "cache/kv_pool.h"

namespace tessera {

std::int64_t page_bytes(const KvShape& shape) {
  return std::int64_t{2} * shape.num_layers * sdk::kPageSize * shape.num_kv_heads * shape.head_dim *
         static_cast<std::int64_t>(sdk::dtype_bytes(shape.dtype));
}

Result<sdk::KvView> allocate_kv(sdk::Backend& backend, const KvShape& shape, std::int32_t num_pages) {
  sdk::KvView view{nullptr, nullptr, shape.dtype, num_pages, shape.num_layers, shape.num_kv_heads, shape.head_dim};
  const auto half = static_cast<std::size_t>(page_bytes(shape) / 2 * num_pages);
  for (void** side : {&view.k, &view.v}) {
    if (Status status = backend.allocate(half, side); !status.ok()) return status;
  }
  return view;
}

}  // namespace tessera
