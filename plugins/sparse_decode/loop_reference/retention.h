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

 protected:
  ~LoopReferenceBase() = default;

  /// Remembers the shape, or says why it is not served.
  tessera::sdk::Status accept(const tessera::sdk::AttentionShape& shape, const tessera::sdk::StepLimits& limits) {
    using tessera::sdk::Code;
    if (shape.kv_dtype != tessera::sdk::DType::f32 || shape.head_dim % 32 != 0 || shape.head_dim > 1024)
      return tessera::sdk::fail(Code::unsupported, "loop_reference: heads of " + std::to_string(shape.head_dim) +
                                                       " are not served; wanted f32 and a multiple of 32 up to 1024");
    shape_ = shape;
    capacity_ = retained_count(limits.max_context, retention_);
    return {};
  }
  /// (slot, layer, head) triples.
  std::size_t heads(std::int32_t num_slots) const {
    return static_cast<std::size_t>(num_slots) * static_cast<std::size_t>(shape_.num_layers) *
           static_cast<std::size_t>(shape_.num_q_heads);
  }

  double retention_ = 0.25;
  tessera::sdk::AttentionShape shape_{};
  std::int64_t capacity_ = 0;  // positions of a selection at most
};

}  // namespace tessera_loop
