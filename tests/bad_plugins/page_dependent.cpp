// A row knows on which page its history starts.
#include "plain_attention.h"

namespace {
struct Broken final : bad::PlainAttention {
  using PlainAttention::PlainAttention;
  float error(const bad::sdk::AttentionArgs& args, std::int32_t row) override {
    return 1e-7f * static_cast<float>(args.rows.pages[slice_of(args, row).first_page]);
  }
};
}  // namespace
TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, Broken, bad::sdk::Device::cpu, "page_dependent", "0.0.1", bad::kTraits)
