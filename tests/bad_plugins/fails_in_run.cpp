// Serves prompts of a few tokens and fails on every step that has a longer history.
#include "plain_attention.h"

namespace {
struct Fragile final : bad::PlainAttention {
  using PlainAttention::PlainAttention;
  bad::sdk::Status run(const bad::sdk::AttentionArgs& args, const bad::sdk::DeviceContext& device) noexcept override {
    for (std::int32_t row = 0; row < args.rows.num_rows; ++row)
      if (args.rows.positions[row] >= 40)
        return bad::sdk::fail(bad::sdk::Code::internal, "fails_in_run: position 40 is too much");
    if (args.scores != nullptr)  // any will do
      for (std::int64_t i = 0; i < args.rows.num_rows * shape_.num_q_heads * args.scores_stride; ++i)
        args.scores[i] = 0.0f;
    return PlainAttention::run(args, device);
  }
};
constexpr bad::sdk::Traits kTraits{bad::kInvariant | bad::sdk::kEmitsScores, 1u, 32, 0, ""};
}  // namespace
TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, Fragile, bad::sdk::Device::cpu, "fails_in_run", "0.0.1", kTraits)
