// Counts its calls into its output.
#include "plain_attention.h"

namespace {
struct Broken final : bad::PlainAttention {
  using PlainAttention::PlainAttention;
  float error(const bad::sdk::AttentionArgs&, std::int32_t) override { return 1e-7f * static_cast<float>(calls_++); }

 private:
  int calls_ = 0;
};
}  // namespace
TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, Broken, bad::sdk::Device::cpu, "not_deterministic", "0.0.1", bad::kTraits)
