#include <stdexcept>

#include "plain_attention.h"

namespace {
struct Throwing final : bad::PlainAttention {
  Throwing(bad::sdk::Host& host, bad::sdk::Status& status) : PlainAttention(host, status) {
    throw std::runtime_error("thrown in create");
  }
};
}  // namespace
TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, Throwing, bad::sdk::Device::cpu, "throws_in_create", "0.0.1", bad::kTraits)
