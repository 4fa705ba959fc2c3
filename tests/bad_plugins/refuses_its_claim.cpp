// Its traits serve every multiple of 32; its bind does not.
#include "plain_attention.h"

namespace {
struct Broken final : bad::PlainAttention {
  using PlainAttention::PlainAttention;
  bad::sdk::Status bind(const bad::sdk::AttentionShape& shape, const bad::sdk::StepLimits& limits,
                        const bad::sdk::DeviceContext& device, std::size_t& workspace_bytes) noexcept override {
    if (shape.head_dim == 128) return bad::sdk::fail(bad::sdk::Code::unsupported, "refuses_its_claim: not 128");
    return PlainAttention::bind(shape, limits, device, workspace_bytes);
  }
};
}  // namespace
TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, Broken, bad::sdk::Device::cpu, "refuses_its_claim", "0.0.1", bad::kTraits)
