// Leaves the last row of its output unwritten: refused before it serves anybody.
#include "plain_attention.h"

namespace {
struct Lazy final : bad::PlainAttention {
  using PlainAttention::PlainAttention;
  bad::sdk::Status run(const bad::sdk::AttentionArgs& args, const bad::sdk::DeviceContext& device) noexcept override {
    bad::sdk::AttentionArgs fewer = args;
    --fewer.rows.num_rows;
    return PlainAttention::run(fewer, device);
  }
};
}  // namespace
TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, Lazy, bad::sdk::Device::cpu, "leaves_gaps", "0.0.1", bad::kTraits)
