// The canonical paged KV pool (docs/kv-layout.md is the contract, byte for byte).
#pragma once
#include <cstdint>

#include "tessera/sdk/tensor.h"

namespace tessera::sdk {

inline constexpr std::int32_t kPageSize = 16;  // positions a page

/// K[page][layer][16][kv_head][head_dim]; V the same. K is stored rotated.
struct KvView {
  void* k;
  void* v;
  DType dtype;
  std::int32_t num_pages;
  std::int32_t num_layers;
  std::int32_t num_kv_heads;
  std::int32_t head_dim;

  /// Element offset of (page, layer, slot, kv_head, component 0); the same in K and V.
  TESSERA_HOST_DEVICE std::int64_t offset(std::int32_t page, std::int32_t layer, std::int32_t slot,
                                          std::int32_t kv_head) const noexcept {
    return (((static_cast<std::int64_t>(page) * num_layers + layer) * kPageSize + slot) * num_kv_heads + kv_head) *
           head_dim;
  }
};

}  // namespace tessera::sdk
