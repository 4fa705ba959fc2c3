// A correct attention, as short as it can be, for plugins that go wrong in one place.
#pragma once
#include <cmath>
#include <vector>

#include "tessera/sdk/attention.h"
#include "tessera/sdk/numerics.h"
#include "tessera/sdk/register.h"

namespace bad {

namespace sdk = tessera::sdk;

class PlainAttention : public sdk::Attention {
 public:
  PlainAttention(sdk::Host&, sdk::Status&) {}
  virtual ~PlainAttention() = default;

  sdk::Status bind(const sdk::AttentionShape& shape, const sdk::StepLimits&, const sdk::DeviceContext&,
                   std::size_t& workspace_bytes) noexcept override {
    if (shape.head_dim <= 0 || shape.head_dim % 32 != 0 || shape.num_kv_heads <= 0 ||
        shape.num_q_heads % shape.num_kv_heads != 0 || shape.kv_dtype != sdk::DType::f32)
      return sdk::fail(sdk::Code::unsupported,
                       "wanted f32, heads of a multiple of 32, and KV heads that divide evenly");
    shape_ = shape;
    workspace_bytes = 0;
    return {};
  }
  sdk::Status plan(const sdk::PackedRows&) noexcept override { return {}; }
  sdk::Status run(const sdk::AttentionArgs& args, const sdk::DeviceContext&) noexcept override {
    return sdk::guarded([&]() -> sdk::Status {
      for (std::int32_t row = 0; row < args.rows.num_rows; ++row)
        for (std::int32_t head = 0; head < shape_.num_q_heads; ++head) attend(args, row, head);
      return {};
    });
  }

 protected:
  /// Added to every output of a row: what a broken subclass lets depend on something it must not.
  virtual float error(const sdk::AttentionArgs&, std::int32_t /*row*/) { return 0.0f; }

  static const sdk::Slice& slice_of(const sdk::AttentionArgs& args, std::int32_t row) {
    return args.rows.slices[args.rows.row_slice[row]];
  }

  sdk::AttentionShape shape_{};

 private:
  void attend(const sdk::AttentionArgs& args, std::int32_t row, std::int32_t head) {
    const std::int32_t length = args.rows.positions[row] + 1;
    const std::int32_t* pages = args.rows.pages + args.rows.slices[args.rows.row_slice[row]].first_page;
    const auto at = [&](std::int32_t j) {
      return args.kv.offset(pages[j / sdk::kPageSize], args.layer, j % sdk::kPageSize,
                            head / (shape_.num_q_heads / shape_.num_kv_heads));
    };
    const float* q = args.q.f32(row) + head * shape_.head_dim;
    float* out = args.out.f32(row) + head * shape_.head_dim;
    weights_.resize(static_cast<std::size_t>(length));
    float* weights = weights_.data();
    float largest = -INFINITY, sum = 0;
    for (std::int32_t j = 0; j < length; ++j) {
      const float* k = static_cast<const float*>(args.kv.k) + at(j);
      float score = 0;
      for (std::int32_t d = 0; d < shape_.head_dim; ++d) score += q[d] * k[d];
      weights[j] = score * shape_.scale;
      largest = std::fmax(largest, weights[j]);
    }
    for (std::int32_t j = 0; j < length; ++j) sum += weights[j] = sdk::exp_f32(weights[j] - largest);
    for (std::int32_t d = 0; d < shape_.head_dim; ++d) out[d] = 0;
    for (std::int32_t j = 0; j < length; ++j) {
      const float* v = static_cast<const float*>(args.kv.v) + at(j);
      for (std::int32_t d = 0; d < shape_.head_dim; ++d) out[d] += weights[j] * v[d];
    }
    const float wrong = error(args, row);
    for (std::int32_t d = 0; d < shape_.head_dim; ++d) out[d] = out[d] / sum + wrong;
  }

  std::vector<float> weights_;
};

inline constexpr std::uint64_t kInvariant = sdk::kBatchInvariant | sdk::kChunkInvariant;
inline constexpr sdk::Traits kTraits{kInvariant, 1u, 32, 0, ""};

}  // namespace bad
