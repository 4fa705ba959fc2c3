// Asks for 1024 bytes and uses one more.
#include "plain_attention.h"

namespace {
struct Broken final : bad::PlainAttention {
  using PlainAttention::PlainAttention;
  bad::sdk::Status bind(const bad::sdk::AttentionShape& shape, const bad::sdk::StepLimits& limits,
                        const bad::sdk::DeviceContext& device, std::size_t& workspace_bytes) noexcept override {
    const auto status = PlainAttention::bind(shape, limits, device, workspace_bytes);
    workspace_bytes = 1024;
    return status;
  }
  bad::sdk::Status run(const bad::sdk::AttentionArgs& args, const bad::sdk::DeviceContext& device) noexcept override {
    static_cast<unsigned char*>(args.workspace)[1024] ^= 0xff;
    return PlainAttention::run(args, device);
  }
};
}  // namespace
TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, Broken, bad::sdk::Device::cpu, "overruns_workspace", "0.0.1", bad::kTraits)
