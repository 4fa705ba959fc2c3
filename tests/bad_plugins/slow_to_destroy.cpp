#include <chrono>
#include <thread>

#include "plain_attention.h"

namespace {
struct Slow final : bad::PlainAttention {
  using PlainAttention::PlainAttention;
  ~Slow() override { std::this_thread::sleep_for(std::chrono::milliseconds(300)); }
};
}  // namespace
TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, Slow, bad::sdk::Device::cpu, "slow_to_destroy", "0.0.1", bad::kTraits)
