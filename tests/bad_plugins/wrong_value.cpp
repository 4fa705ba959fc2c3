// Off by ten times the tolerance.
#include "plain_attention.h"

namespace {
struct Broken final : bad::PlainAttention {
  using PlainAttention::PlainAttention;
  float error(const bad::sdk::AttentionArgs&, std::int32_t) override { return 4e-4f; }
};
}  // namespace
TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, Broken, bad::sdk::Device::cpu, "wrong_value", "0.0.1", bad::kTraits)
