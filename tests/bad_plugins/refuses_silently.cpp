// Refuses without a sentence.
#include "plain_attention.h"

namespace {
struct Broken final : bad::PlainAttention {
  using PlainAttention::PlainAttention;
  bad::sdk::Status bind(const bad::sdk::AttentionShape& shape, const bad::sdk::StepLimits& limits,
                        const bad::sdk::DeviceContext& device, std::size_t& workspace_bytes) noexcept override {
    auto status = PlainAttention::bind(shape, limits, device, workspace_bytes);
    status.message[0] = '\0';
    return status;
  }
};
}  // namespace
TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, Broken, bad::sdk::Device::cpu, "refuses_silently", "0.0.1", bad::kTraits)
