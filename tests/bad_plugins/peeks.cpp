// Multiplies by zero what it should not have read: harmless until that is NaN.
#include "plain_attention.h"

namespace {
struct Peeks final : bad::PlainAttention {
  using PlainAttention::PlainAttention;
  float error(const bad::sdk::AttentionArgs& args, std::int32_t) override {
    const bad::sdk::Slice& last = args.rows.slices[args.rows.num_slices - 1];
    const std::int32_t next = last.first_position + last.num_rows;  // one past the causal end
    const std::int32_t block = next / bad::sdk::kPageSize;
    if (block >= last.num_pages) return 0.0f;
    const std::int32_t page = args.rows.pages[last.first_page + block];
    return 0.0f * static_cast<const float*>(args.kv.v)[args.kv.offset(page, args.layer, next % bad::sdk::kPageSize, 0)];
  }
};
}  // namespace
TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, Peeks, bad::sdk::Device::cpu, "peeks", "0.0.1", bad::kTraits)
