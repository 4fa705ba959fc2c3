// The last model bound is the model of every instance.
#include "plain_attention.h"

namespace {
struct Broken final : bad::PlainAttention {
  using PlainAttention::PlainAttention;
  bad::sdk::Status bind(const bad::sdk::AttentionShape& shape, const bad::sdk::StepLimits& limits,
                        const bad::sdk::DeviceContext& device, std::size_t& workspace_bytes) noexcept override {
    heads = shape.num_q_heads;
    return PlainAttention::bind(shape, limits, device, workspace_bytes);
  }
  float error(const bad::sdk::AttentionArgs&, std::int32_t) override { return 1e-6f * static_cast<float>(heads); }

  static inline std::int32_t heads = 0;
};
}  // namespace
TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, Broken, bad::sdk::Device::cpu, "shares_shape", "0.0.1", bad::kTraits)
