// A second instance fails: something static was left behind.
#include "plain_attention.h"

namespace {
struct Broken final : bad::PlainAttention {
  Broken(bad::sdk::Host& host, bad::sdk::Status& status) : PlainAttention(host, status) {
    static int instances = 0;
    if (++instances > 1) status = bad::sdk::fail(bad::sdk::Code::internal, "only_once: is already in use");
  }
};
}  // namespace
TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, Broken, bad::sdk::Device::cpu, "only_once", "0.0.1", bad::kTraits)
