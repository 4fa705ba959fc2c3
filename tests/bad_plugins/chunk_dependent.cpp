// A row knows how far it is from the start of its chunk.
#include "plain_attention.h"

namespace {
struct Broken final : bad::PlainAttention {
  using PlainAttention::PlainAttention;
  float error(const bad::sdk::AttentionArgs& args, std::int32_t row) override {
    return 1e-6f * static_cast<float>(row - slice_of(args, row).first_row);
  }
};
}  // namespace
TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, Broken, bad::sdk::Device::cpu, "chunk_dependent", "0.0.1", bad::kTraits)
