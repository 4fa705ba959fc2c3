#include "plain_attention.h"

namespace {
struct Unbound final : bad::PlainAttention {
  using PlainAttention::PlainAttention;
  bad::sdk::Status bind(const bad::sdk::AttentionShape&, const bad::sdk::StepLimits&, const bad::sdk::DeviceContext&,
                        std::size_t&) noexcept override {
    return bad::sdk::fail(bad::sdk::Code::unsupported, "fails_in_bind: serves no shape at all");
  }
};
}  // namespace
TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, Unbound, bad::sdk::Device::cpu, "fails_in_bind", "0.0.1", bad::kTraits)
