// Scales the first key it reads, in place.
#include "plain_attention.h"

namespace {
struct Broken final : bad::PlainAttention {
  using PlainAttention::PlainAttention;
  bad::sdk::Status run(const bad::sdk::AttentionArgs& args, const bad::sdk::DeviceContext& device) noexcept override {
    static_cast<float*>(args.kv.k)[args.kv.offset(args.rows.pages[0], args.layer, 0, 0)] *= 0.5f;
    return PlainAttention::run(args, device);
  }
};
}  // namespace
TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, Broken, bad::sdk::Device::cpu, "writes_kv", "0.0.1", bad::kTraits)
