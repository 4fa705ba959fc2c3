// Takes a MiB in every call, up to 256 of them, where everything should have been claimed in bind.
#include <memory>

#include "plain_attention.h"

namespace {
struct Grows final : bad::PlainAttention {
  using PlainAttention::PlainAttention;
  bad::sdk::Status run(const bad::sdk::AttentionArgs& args, const bad::sdk::DeviceContext& device) noexcept override {
    constexpr std::size_t kBytes = 1 << 20;
    if (kept_.size() < 256) kept_.push_back(std::make_unique<char[]>(kBytes));  // zeroed, so touched
    return PlainAttention::run(args, device);
  }

 private:
  std::vector<std::unique_ptr<char[]>> kept_;
};
}  // namespace
TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, Grows, bad::sdk::Device::cpu, "grows_in_run", "0.0.1", bad::kTraits)
