// A strict one: it refuses to run a step that it was not asked to plan. It holds the engine to the contract of
// attention.h.
#include "plain_attention.h"

namespace {
class ChecksPlan final : public bad::PlainAttention {
 public:
  using PlainAttention::PlainAttention;
  bad::sdk::Status plan(const bad::sdk::PackedRows& rows) noexcept override {
    rows_ = rows.num_rows, slices_ = rows.num_slices;
    planned_ = true;
    return {};
  }
  bad::sdk::Status run(const bad::sdk::AttentionArgs& args, const bad::sdk::DeviceContext& device) noexcept override {
    if ((args.layer == 0 && !planned_) || args.rows.num_rows != rows_ || args.rows.num_slices != slices_)
      return bad::sdk::fail(bad::sdk::Code::internal, "checks_plan: these rows were not planned");
    planned_ = false;
    if (args.scores != nullptr)  // any scores will do: what is selected is not the question
      for (std::int64_t i = 0; i < args.rows.num_rows * shape_.num_q_heads * args.scores_stride; ++i)
        args.scores[i] = 0.0f;
    return PlainAttention::run(args, device);
  }

 private:
  std::int32_t rows_ = 0, slices_ = 0;
  bool planned_ = false;  // and no first layer has run since
};
constexpr bad::sdk::Traits kTraits{bad::kInvariant | bad::sdk::kEmitsScores, 1u, 32, 0, ""};
}  // namespace
TESSERA_REGISTER_PLUGIN(bad::sdk::Attention, ChecksPlan, bad::sdk::Device::cpu, "checks_plan", "0.0.1", kTraits)
