// Never comes back.
#include <chrono>
#include <thread>

#include "plain_attention.h"

namespace {
struct Broken final : bad::PlainAttention {
  using PlainAttention::PlainAttention;
  bad::sdk::Status run(const bad::sdk::AttentionArgs& args, const bad::sdk::DeviceContext& device) noexcept override {
    while (args.rows.num_rows > 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return PlainAttention::run(args, device);
  }
};
}  // namespace
TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, Broken, bad::sdk::Device::cpu, "hangs_in_run", "0.0.1", bad::kTraits)
