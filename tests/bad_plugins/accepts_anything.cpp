// Divides by the KV heads of a model it should have refused.
#include "plain_attention.h"

namespace {
struct Broken final : bad::PlainAttention {
  using PlainAttention::PlainAttention;
  bad::sdk::Status bind(const bad::sdk::AttentionShape& shape, const bad::sdk::StepLimits& limits,
                        const bad::sdk::DeviceContext& device, std::size_t& workspace_bytes) noexcept override {
    shape_ = shape;
    workspace_bytes = static_cast<std::size_t>(limits.max_rows * shape.num_q_heads / shape.num_kv_heads);
    return device.executor == nullptr ? bad::sdk::fail(bad::sdk::Code::unsupported, "no CPU") : bad::sdk::Status{};
  }
};
}  // namespace
TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, Broken, bad::sdk::Device::cpu, "accepts_anything", "0.0.1", bad::kTraits)
