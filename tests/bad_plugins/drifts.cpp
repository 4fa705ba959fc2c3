// Off by far more than rounding: seeded answers soon take another course.
#include "plain_attention.h"

namespace {
struct Drifts final : bad::PlainAttention {
  using PlainAttention::PlainAttention;
  float error(const bad::sdk::AttentionArgs& args, std::int32_t) override { return args.layer == 0 ? 0.01f : 0.0f; }
};
}  // namespace
TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, Drifts, bad::sdk::Device::cpu, "drifts", "0.0.1", bad::kTraits)
