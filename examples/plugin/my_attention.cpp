// The whole plugin for the CPU: attend() for each row and query head, shared among the backend's threads.
#include "attend.h"
#include "tessera/sdk/register.h"

namespace my_attention {

class MyAttention final : public Attention {
 public:
  MyAttention(Host&, Status&) {}  // options of the YAML would be read here

  Status bind(const AttentionShape& shape, const StepLimits&, const DeviceContext&,
              std::size_t& workspace_bytes) noexcept override {
    shape_ = shape;
    workspace_bytes = 0;
    return check_shape(shape);
  }
  Status plan(const PackedRows&) noexcept override { return {}; }
  Status run(const AttentionArgs& args, const DeviceContext& device) noexcept override {
    const std::int64_t heads = shape_.num_q_heads;
    parallel_for(*device.executor, args.rows.num_rows * heads, [&](std::int64_t i) {
      attend(args, shape_, static_cast<std::int32_t>(i / heads), static_cast<std::int32_t>(i % heads));
    });
    return {};
  }

 private:
  AttentionShape shape_{};
};

// What it promises. `tessera plugins check` holds it to its word.
constexpr Traits kTraits{kBatchInvariant | kChunkInvariant | kPortableBits, 1u << static_cast<unsigned>(DType::f32),
                         kLanes, kMaxHeadDim, ""};

}  // namespace my_attention

TESSERA_REGISTER_PLUGIN(tessera::sdk::Attention, my_attention::MyAttention, tessera::sdk::Device::cpu, "my_attention",
                        "0.1.0", my_attention::kTraits)
