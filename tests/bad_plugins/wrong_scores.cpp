// Claims to emit scores, and emits zeros.
#include "plain_attention.h"

namespace {
struct Broken final : bad::PlainAttention {
  using PlainAttention::PlainAttention;
  bad::sdk::Status run(const bad::sdk::AttentionArgs& args, const bad::sdk::DeviceContext& device) noexcept override {
    if (args.scores != nullptr)
      for (std::int32_t line = 0; line < args.rows.num_rows * shape_.num_q_heads; ++line)
        args.scores[line * args.scores_stride] = 0.0f;
    return PlainAttention::run(args, device);
  }
};
}  // namespace
TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, Broken, bad::sdk::Device::cpu, "wrong_scores", "0.0.1",
                        bad::sdk::Traits{bad::kInvariant | bad::sdk::kEmitsScores, 1u, 32, 0, ""})
