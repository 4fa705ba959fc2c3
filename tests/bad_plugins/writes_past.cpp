// Writes one element more than its output has: refused before it serves anybody.
#include "plain_attention.h"

namespace {
struct Writer final : bad::PlainAttention {
  using PlainAttention::PlainAttention;
  bad::sdk::Status run(const bad::sdk::AttentionArgs& args, const bad::sdk::DeviceContext& device) noexcept override {
    const auto status = PlainAttention::run(args, device);
    args.out.f32(args.out.rows - 1)[args.out.cols] = 1.0f;
    return status;
  }
};
}  // namespace
TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, Writer, bad::sdk::Device::cpu, "writes_past", "0.0.1", bad::kTraits)
