// Writes one element more than each row has: refused before it serves anybody.
#include "plain_attention.h"

namespace {
struct Writer final : bad::PlainAttention {
  using PlainAttention::PlainAttention;
  bad::sdk::Status run(const bad::sdk::AttentionArgs& args, const bad::sdk::DeviceContext& device) noexcept override {
    const auto status = PlainAttention::run(args, device);
    for (std::int32_t row = 0; row < args.out.rows; ++row) args.out.f32(row)[args.out.cols] = 1.0f;
    return status;
  }
};
}  // namespace
TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, Writer, bad::sdk::Device::cpu, "writes_past", "0.0.1", bad::kTraits)
