// Writes one element after each row: the fixture's guards must see it.
#include "plain_attention.h"

namespace {
struct WritesPast final : bad::PlainAttention {
  using PlainAttention::PlainAttention;
  bad::sdk::Status run(const bad::sdk::AttentionArgs& args, const bad::sdk::DeviceContext& device) noexcept override {
    for (std::int32_t row = 0; row < args.out.rows; ++row) args.out.f32(row)[args.out.cols] = 0;
    return PlainAttention::run(args, device);
  }
};
}  // namespace
TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, WritesPast, bad::sdk::Device::cpu, "writes_past", "0.0.1", bad::kTraits)
