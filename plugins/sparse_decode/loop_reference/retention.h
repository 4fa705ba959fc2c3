// What the plugin of every device shares.
#pragma once
#include <cstdint>
#include <string>

#include "tessera/sdk/host.h"
#include "tessera/sdk/numerics.h"
#include "tessera/sdk/sparse_decode.h"

namespace tessera_loop {

/// k = min(N, max(1, ceil(N * retention))) in f64: f32 gives other counts (N = 50, retention 0.3).
TESSERA_INLINE std::int32_t retained_count(std::int32_t positions, double retention) {
  const double product = static_cast<double>(positions) * retention;
  auto count = static_cast<std::int32_t>(product);
  if (static_cast<double>(count) < product) ++count;
  return count < 1 ? 1 : count > positions ? positions : count;
}

/// Option: retention, the share of positions that later loops read (0.25 by default; 1 is dense decoding).
class LoopReferenceBase : public tessera::sdk::SparseDecode {
 public:
  LoopReferenceBase(tessera::sdk::Host& host, tessera::sdk::Status& status) {
    status = host.option_real("retention", 0.25, 0.0, 1.0, &retention_);
  }
  std::int32_t capture_depth() const noexcept override { return 1; }
  bool active() const noexcept override { return retention_ < 1.0; }
  std::int32_t list_pages(std::int32_t position) const noexcept override {
    return (retained_count(position + 1, retention_) + tessera::sdk::kListPage - 1) / tessera::sdk::kListPage;
  }
  std::size_t reference_bytes() const noexcept override { return bytes_; }

 protected:
  ~LoopReferenceBase() = default;

  /// Remembers the shape, or says why it is not served.
  tessera::sdk::Status accept(const tessera::sdk::AttentionShape& shape, const tessera::sdk::StepLimits& limits,
                              const tessera::sdk::ReferenceRoom& room) {
    using tessera::sdk::Code;
    if (shape.kv_dtype != tessera::sdk::DType::f32 || shape.head_dim % 32 != 0 || shape.head_dim > 1024)
      return tessera::sdk::fail(Code::unsupported, "loop_reference: heads of " + std::to_string(shape.head_dim) +
                                                       " are not served; wanted f32 and a multiple of 32 up to 1024");
    shape_ = shape;
    capacity_ = retained_count(limits.max_context, retention_);
    const auto each = static_cast<std::size_t>(shape.num_layers) * static_cast<std::size_t>(shape.num_q_heads);
    heads_ = static_cast<std::size_t>(room.num_slots) * each;
    list_entries_ = static_cast<std::size_t>(room.num_list_pages) * each * tessera::sdk::kListPage;
    const auto vectors = 2 * static_cast<std::size_t>(shape.head_dim);  // O_ref and C_ref
    bytes_ = heads_ * (sizeof(std::int32_t) + (1 + vectors) * sizeof(float)) + list_entries_ * sizeof(std::int32_t);
    return {};
  }

  double retention_ = 0.25;
  tessera::sdk::AttentionShape shape_{};
  std::int64_t capacity_ = 0;     // positions of a selection at most
  std::size_t heads_ = 0;         // (slot, layer, head) triples
  std::size_t list_entries_ = 0;  // positions on all list pages
  std::size_t bytes_ = 0;
};

}  // namespace tessera_loop
