// Writes through a null pointer.
#include "plain_attention.h"

namespace {
struct Broken final : bad::PlainAttention {
  using PlainAttention::PlainAttention;
  bad::sdk::Status run(const bad::sdk::AttentionArgs& args, const bad::sdk::DeviceContext& device) noexcept override {
    volatile float* volatile nowhere = nullptr;
    *nowhere = 1.0f;
    return PlainAttention::run(args, device);
  }
};
}  // namespace
TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, Broken, bad::sdk::Device::cpu, "crashes_in_run", "0.0.1", bad::kTraits)
