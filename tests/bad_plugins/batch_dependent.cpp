// Claims to be batch invariant, and is not: `tessera check` must catch it.
#include "plain_attention.h"

namespace {
struct Dependent final : bad::PlainAttention {
  using PlainAttention::PlainAttention;
  float error(const bad::sdk::AttentionArgs& args, std::int32_t) override {
    return 1e-6f * static_cast<float>(args.rows.num_slices - 1);
  }
};
}  // namespace
TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, Dependent, bad::sdk::Device::cpu, "batch_dependent", "0.0.1", bad::kTraits)
