// A server with it never stops.
#include <chrono>
#include <thread>

#include "plain_attention.h"

namespace {
struct Broken final : bad::PlainAttention {
  using PlainAttention::PlainAttention;
  ~Broken() override {
    while (!done_) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }

 private:
  volatile bool done_ = false;
};
}  // namespace
TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, Broken, bad::sdk::Device::cpu, "hangs_in_destroy", "0.0.1", bad::kTraits)
