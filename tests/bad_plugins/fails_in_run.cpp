// Serves prompts of a few tokens and fails on every step that has a longer history.
#include "plain_attention.h"

namespace {
struct Fragile final : bad::PlainAttention {
  using PlainAttention::PlainAttention;
  bad::sdk::Status run(const bad::sdk::AttentionArgs& args, const bad::sdk::DeviceContext& device) noexcept override {
    for (std::int32_t row = 0; row < args.rows.num_rows; ++row)
      if (args.rows.positions[row] >= 40)
        return bad::sdk::fail(bad::sdk::Code::internal, "fails_in_run: position 40 is too much");
    return PlainAttention::run(args, device);
  }
};
}  // namespace
TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, Fragile, bad::sdk::Device::cpu, "fails_in_run", "0.0.1", bad::kTraits)
